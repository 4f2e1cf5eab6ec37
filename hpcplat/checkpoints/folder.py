"""A folder of checkpoints: names, what is whole, what is newest, what goes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcplat.checkpoints.manifest import (
    DamagedError,
    Index,
    Manifest,
    from_json,
)
from hpcplat.errors import NotFoundError
from hpcplat.files import sync_folder

PREFIX: Final = "step-"
PARTIAL: Final = ".partial-"
DISCARDED: Final = ".discarded-"
READ_AT_ONCE: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """The names in the folder of one checkpoint, whole or still being written."""

    root: Path

    @property
    def manifest(self) -> Path:
        """The manifest; a folder without one is no checkpoint."""
        return self.root / "manifest.json"

    def pieces(self, rank: int) -> Path:
        """Return the file with a rank's raw bytes."""
        return self.root / f"rank-{rank:05d}.bin"

    def index(self, rank: int) -> Path:
        """Return the file that says what a rank's bytes are."""
        return self.root / f"rank-{rank:05d}.json"

    def refusal(self, rank: int) -> Path:
        """Return the file by which a rank says that it could not write its part."""
        return self.root / f"rank-{rank:05d}.failed"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that has a manifest; whether its files are whole, verify says."""

    folder: CheckpointFolder
    manifest: Manifest

    @property
    def step(self) -> int:
        """The steps that were done when it was taken."""
        return self.manifest.step

    def indexes(self) -> Iterator[Index]:
        """Yield the index of each rank's file."""
        for name in sorted(self.manifest.files):
            if name.endswith(".json"):
                yield Index.model_validate_json((self.folder.root / name).read_bytes())


@dataclass(frozen=True, slots=True)
class Rejected:
    """A checkpoint that is not whole, and why."""

    folder: Path
    reason: str


def name_of(step: int) -> str:
    """Return the folder name of the checkpoint of a step."""
    return f"{PREFIX}{step:010d}"


def partial_name(step: int, incarnation: str) -> str:
    """Return the name under which it is written aside; hidden, and unique to a run."""
    return f"{PARTIAL}{name_of(step)}-{incarnation}"


def step_folders(folder: Path) -> list[Path]:
    """Return the folders that are named like checkpoints, newest step first."""
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if path.name.startswith(PREFIX))
    numbered = [path for path in found if path.name[len(PREFIX) :].isdecimal()]
    return sorted(numbered, key=lambda path: int(path.name[len(PREFIX) :]))[::-1]


def open_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in ``path``; NotFoundError or DamagedError."""
    folder = CheckpointFolder(path)
    try:
        text = folder.manifest.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{path} has no manifest: it is no whole checkpoint.",
            "Choose another; `hpcplat ckpt ls` shows which are whole.",
        ) from error
    return Checkpoint(folder, from_json(text))


def listing(folder: Path) -> tuple[list[Checkpoint], list[Rejected]]:
    """Return the checkpoints of a folder, newest first, and what is none and why."""
    good, bad = [], []
    for path in step_folders(folder):
        try:
            good.append(open_checkpoint(path))
        except (DamagedError, NotFoundError) as error:
            bad.append(Rejected(path, error.what))
    return good, bad


def verify(checkpoint: Checkpoint, part: int = 0, parts: int = 1) -> None:
    """Hash every ``parts``-th file and compare; DamagedError names the first that fails.

    Ranks share the work: rank r of n checks part r of n.
    """
    for name in sorted(checkpoint.manifest.files)[part::parts]:
        _verify_file(checkpoint, name)


def _verify_file(checkpoint: Checkpoint, name: str) -> None:
    entry = checkpoint.manifest.files[name]
    path = checkpoint.folder.root / name
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise DamagedError(f"{name} is missing") from error
    if size != entry.size:
        raise DamagedError(f"{name} has {size} bytes, not {entry.size}")
    if file_hash(path) != entry.sha256:
        raise DamagedError(f"{name} was changed: its SHA-256 does not fit")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    found = hashlib.sha256()
    buffer = bytearray(READ_AT_ONCE)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(view[:count])
    return found.hexdigest()


Verifier = Callable[[Checkpoint], None]


def newest_whole(
    folder: Path, check: Verifier = verify
) -> tuple[Checkpoint | None, list[Rejected]]:
    """Return the newest checkpoint that passes ``check``, and the newer ones rejected.

    None when there is no whole one at all.
    """
    rejected = []
    for path in step_folders(folder):
        try:
            found = open_checkpoint(path)
            check(found)
        except (DamagedError, NotFoundError) as error:
            rejected.append(Rejected(path, error.what))
        else:
            return found, rejected
    return None, rejected


def discard(path: Path) -> None:
    """Remove a checkpoint; at no moment does a half of it look like a whole one."""
    aside = path.with_name(f"{DISCARDED}{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    sync_folder(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(folder: Path, but: str = "") -> list[Path]:
    """Remove what unfinished saves and discards left; not those of run ``but``."""
    gone = []
    for path in folder.iterdir() if folder.is_dir() else ():
        hidden = path.name.startswith((PARTIAL, DISCARDED))
        if hidden and not (but and path.name.endswith(f"-{but}")):
            shutil.rmtree(path, ignore_errors=True)
            gone.append(path)
    return gone


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write on the folder's file system."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@dataclass(frozen=True, slots=True)
class Retention:
    """Which checkpoints stay: the newest, every so many steps', the best by a metric.

    ``best`` names a metric of the manifest; the least value is best, or the greatest
    with a leading minus (``-accuracy``).
    """

    keep_last: int = 3
    keep_every: int | None = None
    best: str | None = None


def superfluous(found: Iterable[Checkpoint], retention: Retention) -> list[Checkpoint]:
    """Return the checkpoints that need not stay, oldest first. Pure."""
    by_step = sorted(found, key=lambda one: one.step)
    keep = {one.step for one in by_step[-max(retention.keep_last, 1) :]}
    if retention.keep_every:
        keep |= {one.step for one in by_step if one.step % retention.keep_every == 0}
    best = _best(by_step, retention.best)
    if best is not None:
        keep.add(best.step)
    return [one for one in by_step if one.step not in keep]


def _best(found: list[Checkpoint], metric: str | None) -> Checkpoint | None:
    if metric is None:
        return None
    name, sign = metric.removeprefix("-"), -1 if metric.startswith("-") else 1
    known = [one for one in found if name in one.manifest.metrics]
    return min(known, key=lambda one: sign * one.manifest.metrics[name], default=None)
