"""Digests of logical tensors that do not depend on how the tensor is split.

The digest of a tensor is the sum over its elements of bits x weight, modulo 2**64,
where the weight is a product of one odd pseudo-random number per coordinate. It is a
multilinear hash (Lemire and Kaser 2014, arXiv:1202.4961): each rank sums over what it
holds, the sums add up, and a moved, swapped, changed or lost element changes it, except
with a probability of about 2**-60. It finds faults; files are guarded by SHA-256.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpcplat.checkpoints.piece import ITEM_SIZES, Piece, Shape

Words = NDArray[np.unsignedinteger[Any]]
Sums = NDArray[np.uint64]

MODULUS = 1 << 64
# Elements worked on at once: two buffers of 8 bytes an element stay in the L2 cache.
CHUNK = 1 << 15
FEW_ROWS = 1 << 11  # 16 KiB of weights


def digest(piece: Piece, content: memoryview | bytes) -> int:
    """Return the piece's part of its tensor's digest; ``content`` is its raw bytes."""
    words = np.frombuffer(content, dtype=f"u{ITEM_SIZES[piece.dtype]}")
    if not words.size:
        return 0
    shape, offset = piece.block.shape or (1,), piece.block.offset or (0,)
    width = shape[-1]
    first, last = piece.start // width, -(-piece.end // width)
    rows = _row_weights(shape, offset, first, last)
    row_of = _Rows(len(shape) - 1, offset[-1], rows)
    total, position, padding = 0, 0, piece.start - first * width
    while position < words.size:
        row, column = divmod(position + padding, width)
        count, until = _next_box(width, column, words.size - position)
        part = words[position : position + count * until].reshape(count, until)
        total += row_of.sum(part, row, column)
        position += part.size
    return total % MODULUS


def _next_box(width: int, column: int, left: int) -> tuple[int, int]:
    """Return (rows, columns) of the largest box that begins here and is worked at once.

    Whole rows as many as fit in a chunk; else what is left of one row, a chunk at most.
    """
    if column == 0 and left >= width and width <= CHUNK:
        return max(min(left // width, CHUNK // width), 1), width
    return 1, min(width - column, left, CHUNK)


class _Rows(NamedTuple):
    """The weights of a piece: by row, and how to get them by column."""

    dimension: int
    first_column: int
    weights: Sums

    def sum(self, words: Words, row: int, column: int) -> int:
        """Return the weighted sum of a box of words that begins at (row, column)."""
        count, width = words.shape
        columns = _weights(self.dimension, self.first_column + column, width)
        products = np.multiply(words, columns, dtype=np.uint64)
        sums = products.sum(axis=1, dtype=np.uint64)
        own = self.weights[row : row + count]
        return int(np.multiply(sums, own, dtype=np.uint64).sum(dtype=np.uint64))


def _row_weights(shape: Shape, offset: Shape, first: int, last: int) -> Sums:
    """Return the weights of rows ``first`` to ``last``: products over the dimensions.

    Those of few rows are kept: every save asks for the same, and to make them took a
    third of a small tensor's digest.
    """
    if last - first > FEW_ROWS:
        return _made_row_weights(shape, offset, first, last)
    return _kept_row_weights(shape, offset, first, last)


@lru_cache(maxsize=512)
def _kept_row_weights(shape: Shape, offset: Shape, first: int, last: int) -> Sums:
    found = _made_row_weights(shape, offset, first, last)
    found.flags.writeable = False
    return found


def _made_row_weights(shape: Shape, offset: Shape, first: int, last: int) -> Sums:
    found: Sums = np.ones(last - first, dtype=np.uint64)
    stride = prod(shape[:-1])
    for dimension, length in enumerate(shape[:-1]):
        stride //= length
        index = np.arange(first, last) // stride % length
        found *= _mixed(
            dimension, index.astype(np.uint64) + np.uint64(offset[dimension])
        )
    return found


@lru_cache(maxsize=64)
def _weights(dimension: int, start: int, length: int) -> Sums:
    return _mixed(dimension, np.arange(start, start + length, dtype=np.uint64))


def _mixed(dimension: int, coordinates: Sums) -> Sums:
    """Return an odd pseudo-random weight for each coordinate (SplitMix64's mixer)."""
    seed = np.uint64((dimension + 1) * 0x9E3779B97F4A7C15 % MODULUS)
    mixed: Sums = (coordinates + np.uint64(1)) * np.uint64(0xD1342543DE82EF95) + seed
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed | np.uint64(1)


def as_text(value: int) -> str:
    """Return a digest as 16 hexadecimal digits."""
    return f"{value % MODULUS:016x}"
