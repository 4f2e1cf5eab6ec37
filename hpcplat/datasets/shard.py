"""The tail of a shard file: where each inner chunk lies (Zarr v3 sharding_indexed).

Source: the Zarr v3 sharding codec, version 1.0: pairs of little-endian uint64
(offset, length) in C order, then the crc32c of those bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from hpcplat.datasets.damage import DamagedError

# What the specification writes for an inner chunk that holds only the fill value.
ABSENT = np.uint64(2**64 - 1)

Index = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """What all shards of an array share.

    ``chunks`` is the number of inner chunks in a shard; ``checked`` says whether
    the index ends with a crc32c; ``at_end`` where the index stands.
    """

    chunks: int
    checked: bool = True
    at_end: bool = True

    @property
    def index_bytes(self) -> int:
        """Size of the index in bytes, its checksum included."""
        return 16 * self.chunks + (4 if self.checked else 0)


def checksum(data: bytes) -> bytes:
    """Return the four bytes of Zarr's crc32c codec: the checksum, little-endian."""
    value: int = google_crc32c.value(data)
    return value.to_bytes(4, "little")


def encode_index(index: Index) -> bytes:
    """Return the bytes of an index of shape (chunks, 2): offset and length."""
    body = np.ascontiguousarray(index, dtype="<u8").tobytes()
    return body + checksum(body)


def read_index(path: Path, handle: int, layout: ShardLayout) -> Index:
    """Read and check a shard's index; returns shape (chunks, 2).

    Raises DamagedError when the file is too short, the checksum is wrong, or a
    chunk lies outside the file.
    """
    size = os.fstat(handle).st_size
    if size < layout.index_bytes:
        raise DamagedError.of(path, f"is {size} bytes, too short for its index")
    where = size - layout.index_bytes if layout.at_end else 0
    raw = os.pread(handle, layout.index_bytes, where)
    body = raw[: 16 * layout.chunks]
    if layout.checked and checksum(body) != raw[len(body) :]:
        raise DamagedError.of(path, "has an index whose checksum is wrong")
    index = np.frombuffer(body, dtype="<u8").reshape(layout.chunks, 2)
    check_inside(path, index, size)
    return index


def check_inside(path: Path, index: Index, size: int) -> None:
    """Refuse an index that points outside its file of ``size`` bytes."""
    offsets, lengths = index[:, 0], index[:, 1]
    limit = np.uint64(size)
    here = offsets != ABSENT
    # Compared without adding, because offset + length may wrap around.
    outside = here & (
        (offsets > limit) | (lengths > limit - np.minimum(offsets, limit))
    )
    if outside.any():
        chunk = int(np.flatnonzero(outside)[0])
        raise DamagedError.of(path, f"has chunk {chunk} outside the file")


def is_back_to_back(index: Index, chunk_bytes: int, needed: int) -> bool:
    """Say whether the first ``needed`` chunks lie in order, whole, from offset 0."""
    expected = np.arange(needed, dtype=np.uint64) * np.uint64(chunk_bytes)
    first: npt.NDArray[Any] = index[:needed]
    return bool(
        (first[:, 0] == expected).all()
        and (first[:, 1] == np.uint64(chunk_bytes)).all()
    )
