"""One at a time, and no file left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpcplat.cluster.lock import locked
from hpcplat.errors import ConflictError, ForbiddenError


def test_the_lock_file_is_gone_afterwards(tmp_path: Path) -> None:
    lock = tmp_path / "new" / ".lock"
    with locked(lock):
        assert lock.exists()
    assert not lock.exists()


def test_a_second_holder_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with (
        locked(lock),
        pytest.raises(ConflictError, match="Another hpcplat"),
        locked(lock, limit=0),
    ):
        pass


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    program = (
        "import pathlib, time; from hpcplat.cluster.lock import locked\n"
        f"with locked(pathlib.Path({str(lock)!r})): print('held', flush=True);"
        " time.sleep(60)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConflictError), locked(lock, limit=0):
            pass
        holder.send_signal(signal.SIGKILL)
    with locked(lock, limit=0):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ForbiddenError, match="may not write"), locked(tmp_path / "l"):
        pass
