"""One Aim repository: opened by this process alone, made anew when it is damaged."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import aim
import aimrocks
import sqlalchemy.event
import sqlalchemy.exc
from aim.storage.structured.db import DB

from hpcplat.errors import ConflictError
from hpcplat.tracking.aimlink import aim_run_hash
from server.collector.aimrun import AimRun
from server.collector.catalogue import TrackedRun

logger = logging.getLogger(__name__)

MOST_OPEN: Final = 100  # runs; each holds two RocksDB stores
DAMAGE = (aimrocks.errors.Corruption, sqlalchemy.exc.DatabaseError)
UNUSABLE = (
    *DAMAGE,
    aimrocks.errors.RocksIOError,
    subprocess.SubprocessError,  # of Aim's own migration
    RuntimeError,
    ValueError,
)


class Repository:
    """A repository in ``folder``; a second one on the same folder is refused.

    The run folders are the truth: what is damaged here is moved aside and collected
    again.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = _locked(folder / "collector.lock")
        self._open: OrderedDict[str, AimRun] = OrderedDict()
        self._repository = self._opened()

    def run(self, tracked: TrackedRun) -> AimRun:
        """Return the run, open to write; the longest unused one is closed for it."""
        key = aim_run_hash(tracked.id)
        found = self._open.pop(key, None)
        if found is None:
            while len(self._open) >= MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            found = self._open_run(key, tracked)
        self._open[key] = found
        return found

    def close_run(self, tracked: TrackedRun) -> None:
        """Write and close a run, if it is open."""
        found = self._open.pop(aim_run_hash(tracked.id), None)
        if found is not None:
            found.close()

    def forget(self, tracked: TrackedRun) -> None:
        """Drop an open run, with what was not written: it will be read again."""
        found = self._open.pop(aim_run_hash(tracked.id), None)
        if found is not None:
            found.abandon()

    def is_closed(self, tracked: TrackedRun) -> bool:
        """Whether a run was collected to its end."""
        return (self._closed / tracked.id).exists()

    def mark_closed(self, tracked: TrackedRun, *, closed: bool) -> None:
        """Remember that a run was collected to its end, or that it goes on."""
        marker = self._closed / tracked.id
        if closed:
            marker.touch()
        else:
            marker.unlink(missing_ok=True)

    def close(self) -> None:
        """Write and close all."""
        while self._open:
            self._open.popitem()[1].close()
        os.close(self._lock)

    @property
    def _closed(self) -> Path:
        # Inside Aim's folder: when that is moved aside, all is collected again.
        return self.folder / ".aim" / "hpcplat-closed"

    def _opened(self) -> Any:  # noqa: ANN401 - Aim's
        try:
            return self._open_repository()
        except (
            *DAMAGE,
            aimrocks.errors.RocksIOError,
            RuntimeError,
            ValueError,
        ) as error:
            logger.warning("The Aim repository %s is damaged: %s", self.folder, error)
            _move_aside(self.folder / ".aim")
            return self._open_repository()

    def _open_repository(self) -> Any:  # noqa: ANN401
        aim.Repo._pool.pop(str(self.folder), None)  # Aim keeps what it opened before
        DB._pool.pop(str(self.folder / ".aim"), None)
        is_new = not (self.folder / ".aim" / "VERSION").exists()
        repository = aim.Repo.from_path(str(self.folder), init=is_new)
        sqlalchemy.event.listen(repository.structured_db.engine, "connect", _hurry)
        repository.structured_db.find_run("none")  # says if the file is no database
        self._closed.mkdir(exist_ok=True)
        return repository

    def _open_run(self, key: str, tracked: TrackedRun) -> AimRun:
        try:
            return AimRun(self._repository, key, tracked.created)
        except DAMAGE as error:
            logger.warning("The Aim run of job %s is damaged: %s", tracked.id, error)
            for store in ("meta", "seqs"):
                _move_aside(Path(self._repository.path) / store / "chunks" / key)
            return AimRun(self._repository, key, tracked.created)


def _hurry(connection: Any, _: object) -> None:  # noqa: ANN401 - sqlite3's, by SQLAlchemy
    """Let SQLite not wait for the disk: after a power cut all is collected again."""
    connection.execute("PRAGMA synchronous = OFF")


def _locked(path: Path) -> int:
    """Hold the lock that only one collector has; the kernel drops it with us."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConflictError(
            f"Another collector writes to the Aim repository in {path.parent}.",
            "Stop it, or name another folder.",
        ) from None
    return handle


def _move_aside(path: Path) -> None:
    """Keep what is damaged, outside of where Aim looks."""
    if path.exists():
        top = next(p for p in (path, *path.parents) if p.name == ".aim").parent
        aside = top / f"damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        aside.mkdir(exist_ok=True)
        shutil.move(path, aside / f"{path.parent.parent.name}-{path.name}")
