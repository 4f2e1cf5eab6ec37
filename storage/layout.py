"""How many rows make a chunk and a shard, so that shards fill whole memory pages."""

from __future__ import annotations

import math
from typing import NamedTuple

CHUNK_BYTES = 128 * 2**10
SHARD_BYTES = 128 * 2**20

# Page sizes that a shard should fill, and how large it may become for that: huge
# pages, which read some tenth faster; the pages of aarch64, and those of x86-64,
# without which shards could not follow each other in memory.
_HUGE = 2**21
_HUGE_UP_TO = 4  # times the size wanted
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
    limits = {_HUGE: _HUGE_UP_TO * shard_bytes}
    limits |= {page: max(shard_bytes, _LARGEST_SHARD) for page in _PAGES}
    step = chunk_rows
    for page, limit in limits.items():
        whole_pages = max(chunk_rows, page // math.gcd(row_bytes, page))
        if whole_pages * row_bytes <= limit:
            step = whole_pages
            break
    shards = max(1, round(shard_bytes / (row_bytes * step)))
    return Layout(chunk_rows, shards * step)
