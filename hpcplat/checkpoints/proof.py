"""Whether the state that was loaded is the state that was saved, on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from hpcplat.checkpoints.digest import MODULUS, as_text, digest
from hpcplat.checkpoints.manifest import TensorEntry
from hpcplat.checkpoints.piece import Block
from hpcplat.checkpoints.shard import Shard
from hpcplat.errors import ConflictError


class ResumeMismatchError(ConflictError):
    """What came back is not what was saved: the first thing that differs."""


@dataclass(frozen=True, slots=True)
class LiveDigest:
    """The digest part of what one rank holds of a tensor."""

    rank: int
    key: str
    block: Block
    start: int
    end: int
    value: int


def live_digests(rank: int, shards: Iterable[Shard]) -> list[LiveDigest]:
    """Digest what this rank holds now (replicas too, and copies written elsewhere)."""
    return [
        LiveDigest(
            rank,
            shard.key,
            Block(shard.offset, shard.shape),
            shard.start,
            shard.end,
            digest(shard.piece, _bytes(shard)),
        )
        for shard in shards
    ]


def _bytes(shard: Shard) -> memoryview:
    flat = shard.flat().contiguous().cpu()
    return flat.view(torch.uint8).numpy().data


def check_state(
    digests: Iterable[LiveDigest], saved: Mapping[str, TensorEntry]
) -> None:
    """Raise ResumeMismatchError for the first tensor that is not as it was saved.

    ``digests`` are those of all ranks. Replicas of a piece must agree, the distinct
    pieces of a tensor must add up to the digest in the manifest, and every saved
    tensor must be there.
    """
    by_key: dict[str, list[LiveDigest]] = {}
    for one in digests:
        by_key.setdefault(one.key, []).append(one)
    for key, entry in saved.items():
        if key not in by_key:
            raise ResumeMismatchError(f"{key} was saved and no rank loaded it.")
        _check_tensor(key, by_key[key], entry)


def _check_tensor(key: str, found: list[LiveDigest], entry: TensorEntry) -> None:
    values: dict[tuple[Block, int, int], LiveDigest] = {}
    for one in found:
        place = (one.block, one.start, one.end)
        first = values.setdefault(place, one)
        if first.value != one.value:
            raise ResumeMismatchError(
                f"{key} differs between ranks {first.rank} and {one.rank}, which hold "
                f"the same part of it."
            )
    total = as_text(sum(one.value for one in values.values()) % MODULUS)
    if total != entry.digest:
        ranks = sorted({one.rank for one in found})
        raise ResumeMismatchError(
            f"{key} is not as it was saved: digest {total}, saved {entry.digest} "
            f"(ranks {ranks})."
        )
