"""A live tensor and its place in the logical one, and the copy that a save takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from hpcplat.checkpoints.piece import Block, Piece, Shape, share

ALIGNMENT = 64  # bytes; so that any number format can be viewed in place

DTYPES = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Shard:
    """Elements of a block of a logical tensor, live on this rank.

    ``tensor`` holds elements ``start`` to ``end`` of the block in row-major order (its
    own shape does not matter). ``replica`` of ``replicas`` ranks hold the very same
    elements; each writes its part of them. ``writes`` is False for a copy that is
    written elsewhere, such as the last stage's tied embedding.
    """

    key: str
    tensor: torch.Tensor
    global_shape: Shape
    offset: Shape
    shape: Shape
    start: int
    end: int
    replica: int = 0
    replicas: int = 1
    writes: bool = True

    @property
    def piece(self) -> Piece:
        """What this rank holds."""
        dtype = DTYPE_NAMES[self.tensor.dtype]
        block = Block(self.offset, self.shape)
        return Piece(self.key, dtype, self.global_shape, block, self.start, self.end)

    def flat(self) -> torch.Tensor:
        """Return the elements as one dimension; a view where memory allows."""
        return self.tensor.detach().reshape(-1)


def whole(key: str, tensor: torch.Tensor, replica: int = 0, replicas: int = 1) -> Shard:
    """Return the shard of a tensor that each of ``replicas`` ranks holds whole."""
    shape = tuple(tensor.shape)
    zeros = (0,) * len(shape)
    size = tensor.numel()
    return Shard(key, tensor, shape, zeros, shape, 0, size, replica, replicas)


def renamed(shard: Shard, key: str, tensor: torch.Tensor) -> Shard:
    """Return the same place for another tensor, such as an optimizer's state."""
    return replace(shard, key=key, tensor=tensor)


@dataclass(frozen=True, slots=True)
class Written:
    """A piece that this rank will write, from which tensor, and where in its file."""

    piece: Piece
    source: torch.Tensor
    position: int


def to_write(shards: Iterable[Shard]) -> list[Written]:
    """Return what this rank writes of its shards, laid out in its file."""
    found, position = [], 0
    for shard in shards:
        size = shard.end - shard.start
        first, last = share(size, shard.replica, shard.replicas)
        if not shard.writes or first == last:
            continue
        piece = replace(shard.piece, start=shard.start + first, end=shard.start + last)
        found.append(Written(piece, shard.flat()[first:last], position))
        position += -(-piece.nbytes // ALIGNMENT) * ALIGNMENT
    return found


class Staging:
    """Host memory that holds the copy of one save, and is used again for the next."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def copy(self, pieces: Sequence[Written]) -> memoryview:
        """Copy the pieces to the host and return them, as they will stand in the file.

        Returns when the copy is done: the tensors may change from then on.
        """
        size = _size(pieces)
        self._reserve(size)
        for one in pieces:
            target = self._buffer[one.position : one.position + one.piece.nbytes]
            target.view(one.source.dtype).copy_(one.source, non_blocking=True)
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
        return self._buffer.numpy().data[:size]

    def reserve(self, pieces: Sequence[Written]) -> None:
        """Get the memory before it is needed: the first save then costs no more."""
        self._reserve(_size(pieces))

    def _reserve(self, size: int) -> None:
        if self._buffer.numel() >= size:
            return
        pinned = torch.cuda.is_available()
        self._buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        self._buffer.zero_()  # touch each page now, not while a step waits


def _size(pieces: Sequence[Written]) -> int:
    if not pieces:
        return 0
    last = pieces[-1]
    return last.position + last.piece.nbytes
