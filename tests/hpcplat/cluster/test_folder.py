"""File names of a cluster, and the limit of a socket's path."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from hpcplat.cluster.folder import LONGEST_SOCKET_PATH, ClusterFolder
from hpcplat.cluster.teardown import take_down
from hpcplat.errors import InvalidError


def test_the_limit_is_what_the_kernel_says(tmp_path: Path) -> None:
    """The kernel refuses one byte more than LONGEST_SOCKET_PATH."""
    stem = f"{tmp_path}/"
    fits = stem + "s" * (LONGEST_SOCKET_PATH - len(stem))
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(fits)
    with socket.socket(socket.AF_UNIX) as one, pytest.raises(OSError, match="too long"):
        one.bind(fits + "s")


def test_the_longest_folder_that_fits() -> None:
    tail = len("/spool/n100/n100_4294967295.4294967295")
    longest = "/" + "a" * (LONGEST_SOCKET_PATH - tail - 1)
    nodes = [f"n{number}" for number in range(1, 101)]
    ClusterFolder(Path(longest)).refuse_too_long(nodes)
    with pytest.raises(InvalidError, match="1 bytes too long"):
        ClusterFolder(Path(longest + "a")).refuse_too_long(nodes)


def test_bytes_are_counted_not_letters() -> None:
    with pytest.raises(InvalidError, match="too long"):
        ClusterFolder(Path("/" + "ä" * 40)).refuse_too_long(["n1"])


def test_a_record_begun_is_no_reason_to_refuse_a_folder(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    assert folder.is_unused()
    (tmp_path / ".cluster.json.x1").touch()
    assert folder.is_unused()
    (tmp_path / "thesis.tex").touch()
    assert not folder.is_unused()
    assert not ClusterFolder(tmp_path / "thesis.tex").is_unused()


def test_the_record_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-down that is killed half-way can be repeated."""
    folder = ClusterFolder(tmp_path / "c")
    (folder.path / "log").mkdir(parents=True)
    folder.record.touch()

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            take_down(folder)
    assert folder.record.exists()
    take_down(folder)
    assert not folder.path.exists()
