"""A version on a node's own disk: copied once, shared by the node's jobs."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpcplat.datasets.manifest import FILE_NAME, read_manifest
from hpcplat.datasets.names import is_digest
from hpcplat.errors import InvalidError, UnavailableError
from storage.copying import Progress, copy_version
from storage.writing import disk_of

# A file beside each staged version; its time is that of the last use.
USED = ".used-"

_RESERVE = 2**30  # bytes of the disk that are left to others


@dataclass(frozen=True, slots=True)
class Limits:
    """What staged versions may take: bytes in all, and seconds since the last use."""

    size: int
    age: float


def own_folder(disk: Path) -> Path:
    """Return this user's folder of copies on a disk that others may write to too.

    Raises InvalidError where somebody else has made it: a copy is trusted to be what
    was checked.
    """
    folder = disk / f"hpcplat-staged-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InvalidError(
            f"{folder} belongs to somebody else.", "Name another folder."
        )
    return folder


def stage(
    version: Path, local: Path, limits: Limits, threads: int, progress: Progress
) -> Path:
    """Return the folder of a copy on this node's disk, every byte checked.

    The first job copies, others that come meanwhile wait for it. Versions that were
    not used for long make room, but none that is being read. Raises UnavailableError
    when it does not fit, DamagedError when the source is not what was written.
    """
    manifest = read_manifest(version)
    target = local / manifest.digest
    local.mkdir(parents=True, exist_ok=True)
    with _locked(local / f".lock-{manifest.digest}"):
        if not target.exists():
            _sweep(local, manifest.digest)
            size = sum(entry.size for entry in manifest.content.files.values())
            with _locked(local / ".lock"):
                evict(local, limits, room_for=size)
                _check_room(local, size, limits)
            with disk_of(local):
                copy_version(version, target, manifest, threads, progress)
        (local / f"{USED}{manifest.digest}").touch()
    return target


def evict(local: Path, limits: Limits, *, room_for: int = 0) -> list[str]:
    """Remove versions that are too old, then the oldest until the rest fits.

    What a process of this node reads stays. Returns the digests removed.
    """
    _sweep_all(local)
    now, removed = time.time(), []
    kept = sorted(_staged(local), key=lambda one: one.used)
    total = sum(one.size for one in kept) + room_for
    for one in kept:
        if now - one.used <= limits.age and total <= limits.size:
            continue
        if _remove_unread(one.folder):
            total -= one.size
            removed.append(one.folder.name)
    return removed


@dataclass(frozen=True, slots=True)
class _Staged:
    folder: Path
    size: int
    used: float


def _staged(local: Path) -> Iterator[_Staged]:
    for folder in local.iterdir() if local.is_dir() else ():
        if is_digest(folder.name):
            size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
            mark = local / f"{USED}{folder.name}"
            used = mark.stat().st_mtime if mark.exists() else folder.stat().st_mtime
            yield _Staged(folder, size, used)


def _remove_unread(folder: Path) -> bool:
    """Remove a version, unless a process of this node holds it open."""
    try:
        handle = os.open(folder / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a copy that somebody took apart
        _remove(folder)
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)  # with the lock held: who opens it now hears of it
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _remove(folder: Path) -> None:
    gone = folder.with_name(f".{folder.name}.gone-{os.getpid()}")
    folder.rename(gone)
    shutil.rmtree(gone)
    folder.with_name(f"{USED}{folder.name}").unlink(missing_ok=True)


def _sweep_all(local: Path) -> None:
    """Remove what copies left behind whose process was killed."""
    digests = {path.name[1:65] for path in local.glob(".*.*")}
    for digest in filter(is_digest, digests):
        handle = os.open(local / f".lock-{digest}", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sweep(local, digest)
        except BlockingIOError:  # it is being copied just now
            continue
        finally:
            os.close(handle)


def _sweep(local: Path, digest: str) -> None:
    for path in local.glob(f".{digest}.*"):
        shutil.rmtree(path, ignore_errors=True)


def _check_room(local: Path, size: int, limits: Limits) -> None:
    kept = sum(one.size for one in _staged(local))
    free = min(shutil.disk_usage(local).free - _RESERVE, limits.size - kept)
    if size > free:
        raise UnavailableError(
            f"{local} has room for {max(free, 0) / 2**30:.1f} GiB, but the version "
            f"takes {size / 2**30:.1f} GiB.",
            "Read it where it is, free some space there, or allow more.",
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
