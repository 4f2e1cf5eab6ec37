"""One start or take-down of a cluster at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hpcplat.errors import ConflictError, ForbiddenError


@contextlib.contextmanager
def locked(path: Path, limit: float = 120.0) -> Iterator[None]:
    """Hold the lock file; it is gone afterwards.

    Waits up to ``limit`` seconds for another holder, then raises ConflictError. The
    kernel drops the lock of a process that is killed. Who gets the lock on a file
    that its last holder has unlinked meanwhile tries again with the new one.
    """
    end = time.monotonic() + limit
    handle = _try_lock(path)
    while handle is None:
        if time.monotonic() > end:
            raise ConflictError(
                f"Another hpcplat has been working on this cluster for {limit:g} s "
                f"(it holds {path}).",
                "Wait for it, or end it.",
            )
        time.sleep(0.1)
        handle = _try_lock(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _try_lock(path: Path) -> int | None:
    try:
        handle = _open(path)
    except FileNotFoundError:  # a take-down has just removed the empty folder
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino == path.stat().st_ino:
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError as error:
        raise ForbiddenError(
            f"You may not write in {path.parent}.",
            "Choose another folder (--folder), or be the user that it belongs to.",
        ) from error
