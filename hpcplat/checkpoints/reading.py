"""Fills live shards from a checkpoint that any layout wrote."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hpcplat.checkpoints.folder import Checkpoint
from hpcplat.checkpoints.manifest import DamagedError, StoredPiece
from hpcplat.checkpoints.piece import ITEM_SIZES, Block, intersection
from hpcplat.checkpoints.shard import DTYPES, Shard
from hpcplat.errors import InvalidError

Words = NDArray[np.unsignedinteger[Any]]


class OtherModelError(InvalidError):
    """The checkpoint is of another model: which tensors differ, and how."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stored piece, and the file that holds it."""

    file: Path
    stored: StoredPiece

    @property
    def block(self) -> Block:
        """The block of which it is a piece."""
        return Block(self.stored.offset, self.stored.shape)


class Contents:
    """The pieces of a checkpoint, by logical tensor."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._sources: dict[str, list[Source]] = {}
        for index in checkpoint.indexes():
            file = checkpoint.folder.root / index.file
            for stored in index.pieces:
                self._sources.setdefault(stored.key, []).append(Source(file, stored))

    def check(self, shards: Iterable[Shard]) -> None:
        """Raise OtherModelError with all tensors that are missing or of another shape."""
        wrong = [told for shard in shards for told in self._mismatch(shard)]
        if wrong:
            more = f" (and {len(wrong) - 5} more)" if len(wrong) > 5 else ""
            raise OtherModelError(
                f"{self.checkpoint.folder.root} is of another model: "
                + "; ".join(wrong[:5])
                + more
                + ".",
                "Give the settings it was made with, or start without it.",
            )

    def load(self, shards: Iterable[Shard]) -> None:
        """Fill every shard's tensor in place, converting the number format if need be."""
        wanted = list(shards)
        self.check(wanted)
        files: Files = {}  # each file is mapped once; maps go with their last view
        for shard in wanted:
            _fill(shard, self._sources[shard.key], files)

    def tensor(self, key: str, block: Block | None = None) -> torch.Tensor:
        """Return a logical tensor, or a block of it, on the CPU."""
        entry = self.checkpoint.manifest.tensors[key]
        box = block or Block((0,) * len(entry.shape), entry.shape)
        found = torch.empty(box.shape, dtype=DTYPES[entry.dtype])
        self.load(
            [Shard(key, found, entry.shape, box.offset, box.shape, 0, found.numel())]
        )
        return found

    def _mismatch(self, shard: Shard) -> Iterator[str]:
        entry = self.checkpoint.manifest.tensors.get(shard.key)
        if entry is None:
            yield f"{shard.key} is not in it"
        elif entry.shape != shard.global_shape:
            yield (
                f"{shard.key} is {list(entry.shape)} there and "
                f"{list(shard.global_shape)} here"
            )


Files = dict[Path, memoryview]


def _bytes_of(source: Source, files: Files) -> memoryview:
    if source.file not in files:
        with source.file.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        files[source.file] = memoryview(mapped)
    stored = source.stored
    end = stored.position + stored.piece.nbytes
    return files[source.file][stored.position : end]


def _fill(shard: Shard, sources: list[Source], files: Files) -> None:
    """Assemble the block that the shard belongs to, then copy its elements."""
    stored_dtype = sources[0].stored.dtype
    block = Block(shard.offset, shard.shape)
    words = np.empty(block.shape or (1,), dtype=f"u{ITEM_SIZES[stored_dtype]}")
    target = words.reshape(block.shape)
    filled = 0
    for other, parts in _by_block(sources).items():
        common = intersection(block, other)
        if common is not None:
            content = _block_words(other, parts, files)
            target[common.slices(block)] = content[common.slices(other)]
            filled += common.size
    if filled != block.size:
        raise DamagedError(f"{shard.key} is not whole: {filled} of {block.size}")
    own = words.reshape(-1)[shard.start : shard.end]
    found = torch.from_numpy(own).view(DTYPES[stored_dtype])
    with torch.no_grad():
        shard.tensor.copy_(found.reshape(shard.tensor.shape))


def _by_block(sources: list[Source]) -> Mapping[Block, list[Source]]:
    found: dict[Block, list[Source]] = {}
    for source in sources:
        found.setdefault(source.block, []).append(source)
    return found


def _block_words(block: Block, parts: list[Source], files: Files) -> Words:
    """Return a block's elements as raw words, joined from its pieces."""
    stored = parts[0].stored
    kind = f"u{ITEM_SIZES[stored.dtype]}"
    if len(parts) == 1 and stored.piece.whole_block:
        flat: Words = np.frombuffer(_bytes_of(parts[0], files), dtype=kind)
        return flat.reshape(block.shape)
    flat = np.empty(prod(block.shape), dtype=kind)
    held = 0
    for part in parts:
        own = np.frombuffer(_bytes_of(part, files), dtype=kind)
        flat[part.stored.start : part.stored.end] = own
        held += own.size
    if held != flat.size:
        raise DamagedError(f"{stored.key} is not whole: {held} of {flat.size}")
    return flat.reshape(block.shape)
