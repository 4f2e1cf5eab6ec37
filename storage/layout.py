"""How many rows make a chunk and a shard, so that shards fill whole memory pages."""

from __future__ import annotations

import math
from typing import NamedTuple

CHUNK_BYTES = 128 * 2**10
SHARD_BYTES = 128 * 2**20

# The largest page of the machines that Slurm runs on (aarch64), then x86-64's.
_PAGES = (2**16, 2**12)
_LARGEST_SHARD = 4 * 2**30


class Layout(NamedTuple):
    """Rows in an inner chunk and in a shard."""

    chunk_rows: int
    shard_rows: int


def layout_of(
    row_bytes: int, chunk_bytes: int = CHUNK_BYTES, shard_bytes: int = SHARD_BYTES
) -> Layout:
    """Return chunks of about ``chunk_bytes`` and shards of about ``shard_bytes``.

    A shard is a whole number of memory pages where that can be had, because then
    shards follow each other in memory without a gap.
    """
    chunk_rows = 2 ** max(0, int(math.log2(max(1, chunk_bytes // row_bytes))))
    for page in _PAGES:
        step = max(chunk_rows, page // math.gcd(row_bytes, page))
        if step * row_bytes <= max(shard_bytes, _LARGEST_SHARD):
            break
    else:
        step = chunk_rows
    shards = max(1, round(shard_bytes / (row_bytes * step)))
    return Layout(chunk_rows, shards * step)
