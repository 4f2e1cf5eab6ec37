"""A missing program or plugin is named with the line that brings it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcplat.cluster import packages
from hpcplat.cluster.place import ChangeRoot
from hpcplat.errors import UnavailableError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a change-root folder that has every program and plugin."""
    programs = tmp_path / "usr/sbin"
    plugins = tmp_path / "usr/lib/x86_64-linux-gnu/slurm-wlm"
    for folder, names in (
        (programs, packages.PROGRAMS),
        (plugins, packages.PLUGINS),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch(mode=0o755)
    return tmp_path


def test_nothing_is_missing(root: Path) -> None:
    packages.require(ChangeRoot(root, ()))


def test_all_that_is_missing_is_named_at_once(root: Path) -> None:
    (root / "usr/sbin/munged").unlink()
    (root / "usr/lib/x86_64-linux-gnu/slurm-wlm/auth_jwt.so").unlink()
    with pytest.raises(UnavailableError) as caught:
        packages.require(ChangeRoot(root, ()))
    assert "munged, auth_jwt.so" in caught.value.what
    assert caught.value.remedy.endswith(
        "apt-get install --no-install-recommends munge slurm-wlm-jwt-plugin"
    )


def test_another_system_may_keep_its_plugins_elsewhere(root: Path) -> None:
    (root / "usr/lib/x86_64-linux-gnu/slurm-wlm").rename(root / "plugins")
    packages.require(ChangeRoot(root, ()))
