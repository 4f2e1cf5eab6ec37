"""Who only asks which datasets there are loads no array library."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hpcplat.datasets


def test_the_store_needs_no_numpy() -> None:
    code = "import sys, hpcplat.datasets.store; print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(hpcplat.datasets.HOMES) == set(hpcplat.datasets.__all__)
    for name in hpcplat.datasets.__all__:
        assert getattr(hpcplat.datasets, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hpcplat.datasets.nothing
