"""A site's policy is read from a file, each fault named by its field."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hpcplat.errors import NotFoundError
from hpcplat.jobs import SpecError
from hpcplat.sitepolicy import read_policy


def test_what_the_file_says_and_defaults_for_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("gpu_option: gpus-per-node\ndefault_time: 2h\ndatasets: /shared\n")
    policy = read_policy(file)
    assert policy.gpu_option == "gpus-per-node"
    assert policy.default_time == timedelta(hours=2)
    assert policy.datasets == "/shared"
    assert policy.srun == "srun"


def test_an_unknown_key_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("gpu_optoin: gres\n")
    with pytest.raises(SpecError, match="gpu_option"):
        read_policy(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"gone\.yaml is not there"):
        read_policy(tmp_path / "gone.yaml")
