"""A piece of a logical tensor: which of its elements a rank holds, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

# Our names of number formats, with the bytes of one element.
ITEM_SIZES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A box in a logical tensor: where it begins, and its extent (same length)."""

    offset: Shape
    shape: Shape

    @property
    def size(self) -> int:
        """How many elements it holds."""
        return prod(self.shape)

    def slices(self, within: Block) -> tuple[slice, ...]:
        """Return where this box lies in the array that holds ``within``."""
        return tuple(
            slice(start - base, start - base + length)
            for start, length, base in zip(
                self.offset, self.shape, within.offset, strict=True
            )
        )


def intersection(one: Block, other: Block) -> Block | None:
    """Return the box that both hold; None if they hold nothing in common."""
    starts = tuple(map(max, one.offset, other.offset))
    ends = tuple(
        min(start + length, start2 + length2)
        for start, length, start2, length2 in zip(
            one.offset, one.shape, other.offset, other.shape, strict=True
        )
    )
    shape = tuple(end - start for start, end in zip(starts, ends, strict=True))
    return Block(starts, shape) if all(length > 0 for length in shape) else None


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements ``start`` to ``end`` of a block, in row-major order, of one tensor."""

    key: str
    dtype: str
    global_shape: Shape
    block: Block
    start: int
    end: int

    @property
    def whole_block(self) -> bool:
        """Whether it is the whole block."""
        return self.start == 0 and self.end == self.block.size

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return (self.end - self.start) * ITEM_SIZES[self.dtype]


def share(size: int, index: int, count: int) -> tuple[int, int]:
    """Return the bounds of the ``index``-th of ``count`` nearly equal parts."""
    return size * index // count, size * (index + 1) // count


def missing(shape: Shape, pieces: list[Piece]) -> int:
    """Return how many elements of a tensor no piece holds (-n: n are held twice).

    Pieces of one block must tile it, and the blocks must tile the tensor; equal
    pieces (replicas) count once.
    """
    held = {(one.block, one.start, one.end) for one in pieces}
    return prod(shape) - sum(end - start for _, start, end in held)


def rows_of(piece: Piece) -> Iterator[tuple[int, int, int]]:
    """Yield (row, first column, last column + 1) of the block that the piece covers.

    A row is a run along the last dimension; rows are numbered in row-major order.
    """
    width = piece.block.shape[-1] if piece.block.shape else 1
    position = piece.start
    while position < piece.end:
        row, column = divmod(position, width)
        until = min(width, column + piece.end - position)
        yield row, column, until
        position += until - column
