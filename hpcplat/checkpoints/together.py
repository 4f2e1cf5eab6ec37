"""What all ranks do together at a resume; a single process is a world of one.

Needs torch.distributed's default group where there is more than one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from hpcplat.checkpoints.folder import (
    Checkpoint,
    Rejected,
    open_checkpoint,
    step_folders,
    verify,
)
from hpcplat.checkpoints.manifest import DamagedError, TensorEntry
from hpcplat.checkpoints.proof import check_state, live_digests
from hpcplat.checkpoints.shard import Shard
from hpcplat.errors import HpcplatError, NotFoundError

Tell = Callable[[Rejected], None]


def rank_and_world() -> tuple[int, int]:
    """Return this rank and the number of ranks."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def from_all(value: Any) -> list[Any]:  # noqa: ANN401 - whatever can be pickled
    """Return the values of all ranks, by rank."""
    _, world = rank_and_world()
    if world == 1:
        return [value]
    found: list[Any] = [None] * world
    dist.all_gather_object(found, value)
    return found


def from_first(value: Any) -> Any:  # noqa: ANN401
    """Return rank 0's value on every rank."""
    if rank_and_world()[1] == 1:
        return value
    found = [value]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def together(action: Callable[[], None]) -> None:
    """Do something on all ranks; if it fails on one, raise the same error on all."""
    error: HpcplatError | None = None
    try:
        action()
    except HpcplatError as found:
        error = found
    told = next((one for one in from_all(error) if one is not None), None)
    if told is not None:
        raise told


def find_newest(folder: Path, tell: Tell) -> Checkpoint | None:
    """Return the newest checkpoint that all ranks together find whole.

    Each rank hashes its part of the files. ``tell`` hears of every newer one that is
    not whole. None when there is no whole one.
    """
    rank, world = rank_and_world()
    paths: list[Path] = from_first(step_folders(folder) if rank == 0 else [])
    for path in paths:
        found, reason = _opened(path, rank, world)
        reasons = [one for one in from_all(reason) if one]
        if not reasons:
            return found
        tell(Rejected(path, reasons[0]))
    return None


def _opened(path: Path, part: int, parts: int) -> tuple[Checkpoint | None, str]:
    try:
        found = open_checkpoint(path)
        verify(found, part, parts)
    except (DamagedError, NotFoundError) as error:
        return None, error.what
    return found, ""


def prove_state(shards: Iterable[Shard], saved: dict[str, TensorEntry]) -> None:
    """Raise ResumeMismatchError on all ranks if what is live is not what was saved."""
    rank, world = rank_and_world()
    digests = live_digests(rank, shards)
    gathered: list[Any] = [digests]
    if world > 1:
        gathered = [None] * world if rank == 0 else []
        dist.gather_object(digests, gathered or None, dst=0)
    # Rank 0 alone holds all digests.
    together(
        lambda: (
            check_state((one for own in gathered for one in own), saved)
            if rank == 0
            else None
        )
    )
