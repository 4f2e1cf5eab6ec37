"""Test processes share the real Unix users without waiting for each other."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unix_users import shared_users

# No other process of the suite uses this one.
NAME = f"hpcplat-{os.getpid()}"
OTHER = """
import pathlib, pwd, sys
from tests.unix_users import shared_users
with shared_users([sys.argv[1]], pathlib.Path(sys.argv[2]), ""):
    print(pwd.getpwnam(sys.argv[1]).pw_name, flush=True)
    sys.stdin.read()
"""
ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making users takes root")


def is_there() -> bool:
    return any(entry.pw_name == NAME for entry in pwd.getpwall())


def other(folder: Path) -> subprocess.Popen[str]:
    """Start another process that has the user until its standard input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, NAME, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def has_it(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline().strip() == NAME


def test_who_comes_while_another_holds_waits_for_nobody(tmp_path: Path) -> None:
    with shared_users([NAME], tmp_path, ""):
        with other(tmp_path) as beside:
            assert has_it(beside)
            beside.communicate(timeout=60)
        assert beside.returncode == 0
        assert is_there(), "the one that left first removed it"
    assert not is_there()


def test_the_last_one_removes_them_whoever_made_them(tmp_path: Path) -> None:
    with shared_users([NAME], tmp_path, ""):
        beside = other(tmp_path)
        assert has_it(beside)
    assert is_there()
    with beside:
        beside.communicate(timeout=60)
    assert not is_there()


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with other(tmp_path) as killed:
        assert has_it(killed)
        killed.kill()
    assert is_there()
    with shared_users([NAME], tmp_path, ""):
        assert is_there()
    assert not is_there()
