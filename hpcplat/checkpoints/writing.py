"""One save in the background: a rank's bytes, its index, and rank 0's manifest."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from hpcplat.checkpoints.digest import as_text, digest
from hpcplat.checkpoints.folder import (
    READ_AT_ONCE,
    CheckpointFolder,
    file_hash,
    name_of,
    partial_name,
)
from hpcplat.checkpoints.manifest import (
    FileEntry,
    Index,
    Manifest,
    Origin,
    StoredPiece,
    tensors_of,
    to_json,
)
from hpcplat.checkpoints.piece import Piece
from hpcplat.errors import UnavailableError
from hpcplat.files import sync_folder, write_whole

POLL = 0.02  # seconds between looks for the other ranks' parts


class SaveFailedError(UnavailableError):
    """A checkpoint that could not be written; the older ones stay."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a checkpoint says of the run, besides its tensors."""

    step: int
    samples: int
    origin: Origin
    extras: Mapping[str, JsonValue] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """A rank's part of a save: its pieces with their positions, and the bytes."""

    rank: int
    world: int
    pieces: Sequence[tuple[Piece, int]]
    content: memoryview


def write_part(folder: CheckpointFolder, part: Part) -> None:
    """Write a rank's bytes and, once they are on disk, the index that vouches for them.

    Raises SaveFailedError when the disk takes no more.
    """
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        sha256 = _write_bytes(folder.pieces(part.rank), part.content)
        index = Index(
            file=folder.pieces(part.rank).name,
            size=len(part.content),
            sha256=sha256,
            pieces=tuple(_stored(piece, at, part.content) for piece, at in part.pieces),
        )
        write_whole(folder.index(part.rank), index.model_dump_json())
    except OSError as error:
        _refuse(folder, part.rank, error)
        raise SaveFailedError(
            f"rank {part.rank} could not write its part: {error.strerror or error}."
        ) from error


def _stored(piece: Piece, position: int, content: memoryview) -> StoredPiece:
    own = content[position : position + piece.nbytes]
    return StoredPiece(
        key=piece.key,
        dtype=piece.dtype,
        global_shape=piece.global_shape,
        offset=piece.block.offset,
        shape=piece.block.shape,
        start=piece.start,
        end=piece.end,
        position=position,
        digest=as_text(digest(piece, own)),
    )


def _write_bytes(path: Path, content: memoryview) -> str:
    found = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        position = 0
        while position < len(content):
            count = file.write(content[position : position + READ_AT_ONCE])
            found.update(content[position : position + count])
            position += count
        os.fsync(file.fileno())
    return found.hexdigest()


def _refuse(folder: CheckpointFolder, rank: int, error: OSError) -> None:
    try:
        folder.refusal(rank).write_text(str(error.strerror or error))
    except OSError:
        return  # a full disk takes not even this: rank 0 is told by its own time limit


def finish(
    folder: Path,
    incarnation: str,
    facts: Facts,
    patience: float,
    abandoned: Callable[[], bool] = lambda: False,
) -> Path:
    """Wait for all ranks' parts, write the manifest and give the checkpoint its name.

    For rank 0. ``patience`` in seconds; ``abandoned`` says that some rank is known to
    have failed. Raises SaveFailedError; what was written by then is removed by the
    caller (``remove_leftovers``).
    """
    partial = CheckpointFolder(folder / partial_name(facts.step, incarnation))
    _wait_for_parts(partial, facts.origin.world_size, patience, abandoned)
    try:
        manifest = _manifest(partial, facts)
        write_whole(partial.manifest, to_json(manifest))
        target = folder / name_of(facts.step)
        _make_way(target)
        partial.root.rename(target)
        sync_folder(folder)
    except OSError as error:
        raise SaveFailedError(
            f"the manifest could not be written: {error.strerror or error}."
        ) from error
    return target


def _make_way(target: Path) -> None:
    """Put an earlier checkpoint of the same step (run again after a resume) aside."""
    if target.exists():
        from_before = target.with_name(f".discarded-{target.name}-{time.time_ns()}")
        target.rename(from_before)


def _wait_for_parts(
    folder: CheckpointFolder,
    world: int,
    patience: float,
    abandoned: Callable[[], bool],
) -> None:
    deadline = time.monotonic() + patience
    waiting = set(range(world))
    while waiting:
        waiting = {rank for rank in waiting if not folder.index(rank).exists()}
        refusing = [rank for rank in waiting if folder.refusal(rank).exists()]
        if refusing:
            reason = folder.refusal(refusing[0]).read_text()
            raise SaveFailedError(f"rank {refusing[0]} could not write: {reason}.")
        if waiting and (abandoned() or time.monotonic() > deadline):
            raise SaveFailedError(f"no part came from rank {min(waiting)}.")
        if waiting:
            time.sleep(POLL)


def wait_for_answers(
    folder: CheckpointFolder,
    world: int,
    patience: float,
    abandoned: Callable[[], bool],
) -> None:
    """Wait until each rank wrote its part or said that it can't: then none comes late.

    What is removed before that would be made again by a rank that is behind.
    """
    deadline = time.monotonic() + patience
    waiting = set(range(world))
    while waiting and time.monotonic() < deadline and not abandoned():
        waiting = {
            rank
            for rank in waiting
            if not (folder.index(rank).exists() or folder.refusal(rank).exists())
        }
        if waiting:
            time.sleep(POLL)


def _manifest(folder: CheckpointFolder, facts: Facts) -> Manifest:
    indexes, files = [], {}
    for rank in range(facts.origin.world_size):
        path = folder.index(rank)
        index = Index.model_validate_json(path.read_bytes())
        indexes.append(index)
        size = path.stat().st_size
        files[path.name] = FileEntry(size=size, sha256=file_hash(path))
        files[index.file] = FileEntry(size=index.size, sha256=index.sha256)
    return Manifest(
        step=facts.step,
        samples=facts.samples,
        created=time.time(),
        origin=facts.origin,
        extras=dict(facts.extras),
        metrics=dict(facts.metrics),
        files=files,
        tensors=tensors_of(indexes),
    )
