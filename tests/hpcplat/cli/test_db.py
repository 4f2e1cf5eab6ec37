"""`hpcplat db migrate`: as it is run, twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def run(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hpcplat.cli.main", "db", "migrate"],
        env={**os.environ, "HPCPLAT_DATA": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_database_is_brought_to_this_release_and_stays_so(tmp_path: Path) -> None:
    for _ in range(2):
        done = run(tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "The database is of this release.\n"
    assert (tmp_path / "hpcplat.db").is_file()


def test_a_database_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, HPCPLAT_DATABASE="mysql://host/name")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "PostgreSQL" in done.stderr
