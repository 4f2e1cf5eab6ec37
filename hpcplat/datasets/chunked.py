"""Compressed shards: each chunk is decoded at most once while a batch needs it."""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.array_format import ArrayFormat
from hpcplat.datasets.codecs import decoder
from hpcplat.datasets.damage import DamagedError
from hpcplat.datasets.flat import Rows, open_shard, stretches_of
from hpcplat.datasets.resident import ResidentWatch
from hpcplat.datasets.shard import ABSENT, read_index

# So many shards stay mapped; the kernel allows 65,530 maps in a process.
_MAPPED_SHARDS = 1024

_AT_ONCE = 16  # chunks decoded between two looks at the resident pages
_HUGE_PAGE = 2 * 2**20
_ABSENT = int(ABSENT)


class _Shard(NamedTuple):
    """``where`` holds (offset, length) in bytes of each chunk."""

    path: Path
    mapped: mmap.mmap
    data: memoryview
    where: list[tuple[int, int]]


class Bounds(NamedTuple):
    """Bytes of decoded chunks that are kept, and of the files' pages that stay."""

    decoded: int
    resident: int


class ChunkedRows:
    """The rows of an array whose chunks must be decoded, or do not lie in order.

    ``threads`` decode side by side. Threads may share one object.
    """

    def __init__(
        self, folder: Path, array: ArrayFormat, bounds: Bounds, threads: int
    ) -> None:
        self._folder = folder
        self._format = array
        self._watch = ResidentWatch(bounds.resident)
        self._decode = decoder(array.compressors)
        empty = (array.chunk_rows, *array.row_shape)
        fill = np.full(empty, array.fill_value, array.dtype)
        self._fill = fill.reshape(-1).view(np.uint8)
        self._shards: OrderedDict[int, _Shard] = OrderedDict()
        total = -(-array.rows // array.chunk_rows)
        slots = max(1, min(total, bounds.decoded // max(array.chunk_bytes, 1)))
        self._slab = np.empty((slots, array.chunk_bytes), dtype=np.uint8)
        shape = (slots, array.chunk_rows, *array.row_shape)
        self._decoded: npt.NDArray[Any] = self._slab.view(array.dtype).reshape(shape)
        self._stretches: dict[int, npt.NDArray[np.void]] = {}
        self._last_use = np.zeros(slots, dtype=np.int64)
        self._chunk_in = np.full(slots, -1, dtype=np.int64)
        self._slot_of: dict[int, int] = {}
        self._clock = 0
        self._lock = RLock()
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def all_rows(self) -> npt.NDArray[Any]:
        """Decode the whole array."""
        return self.slice(0, self._format.rows)

    def slice(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Decode rows start … stop-1."""
        size = self._format.chunk_rows
        length = max(stop - start, 0)
        out = np.empty((length, *self._format.row_shape), self._format.dtype)
        chunks = np.arange(start // size, -(-stop // size) if length else start // size)
        whole = [
            c for c in chunks.tolist() if start <= c * size and c * size + size <= stop
        ]
        with self._lock:
            whole = [chunk for chunk in whole if chunk not in self._slot_of]
            self._decode_all(whole, [self._place(out, c * size - start) for c in whole])
            others = np.setdiff1d(chunks, whole, assume_unique=True)
            for part, slots in self._in_parts(others):
                for chunk, slot in zip(others[part].tolist(), slots, strict=True):
                    first = max(chunk * size, start)
                    last = min(chunk * size + size, stop)
                    piece = self._decoded[slot, first - chunk * size :]
                    out[first - start : last - start] = piece[: last - first]
        return out

    def _place(self, out: npt.NDArray[Any], row: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of ``out`` that a whole chunk from ``row`` on fills."""
        rows = out[row : row + self._format.chunk_rows]
        return rows.reshape(-1).view(np.uint8)

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        """Copy rows of the first axis: shape (n, …)."""
        out = np.empty((len(rows), *self._format.row_shape), self._format.dtype)
        chunks, inside = np.divmod(rows, self._format.chunk_rows)
        with self._lock:
            for part, slots in self._in_parts(chunks):
                out[part] = self._decoded[slots, inside[part]]
        return out

    def windows(self, starts: Rows, width: int) -> npt.NDArray[Any]:
        """Copy stretches of a one-dimensional array: shape (n, width)."""
        size = self._format.chunk_rows
        out = np.empty((len(starts), width), self._format.dtype)
        first, inside = np.divmod(starts, size)
        crosses = inside + width > size
        whole = np.flatnonzero(~crosses)
        stretches = self._sliding(width)
        opaque = out.view(stretches.dtype)[:, 0] if width else stretches[:0]
        with self._lock:
            for part, slots in self._in_parts(first[whole]):
                rows = whole[part]
                opaque[rows] = stretches[slots * size + inside[rows]]
            for row in np.flatnonzero(crosses).tolist():
                out[row] = self.slice(int(starts[row]), int(starts[row]) + width)
        return out

    def _sliding(self, width: int) -> npt.NDArray[np.void]:
        if width not in self._stretches:
            flat = self._decoded.reshape(-1)
            self._stretches[width] = stretches_of(flat, width)
        return self._stretches[width]

    def forget_pages(self) -> None:
        """Let go of what was read of the shards; decoded chunks have their own bound."""
        for shard in self._shards.values():
            shard.mapped.madvise(mmap.MADV_DONTNEED)

    def _in_parts(self, chunks: Rows) -> Iterator[tuple[Rows, Rows]]:
        """Yield positions in ``chunks`` with the slots that hold those chunks now."""
        wanted, which = np.unique(chunks, return_inverse=True)
        for first in range(0, len(wanted), len(self._slab)):
            group = wanted[first : first + len(self._slab)]
            slots = self._load(group)
            if len(group) == len(wanted):
                yield np.arange(len(chunks)), slots[which]
            else:
                part = np.flatnonzero((which >= first) & (which < first + len(group)))
                yield part, slots[which[part] - first]

    def _load(self, chunks: Rows) -> Rows:
        """Decode those of these distinct chunks that no slot holds; return the slots."""
        self._clock += 1
        slots = np.array([self._slot_of.get(c, -1) for c in chunks.tolist()], np.int64)
        self._last_use[slots[slots >= 0]] = self._clock
        missing = np.flatnonzero(slots < 0)
        oldest = np.argsort(self._last_use, kind="stable")[: len(missing)]
        slots[missing] = oldest
        self._claim(chunks[missing].tolist(), oldest.tolist())
        return slots

    def _claim(self, chunks: list[int], slots: list[int]) -> None:
        for slot in slots:
            self._slot_of.pop(int(self._chunk_in[slot]), None)
            self._chunk_in[slot] = -1
        self._decode_all(chunks, [self._slab[slot] for slot in slots])
        for chunk, slot in zip(chunks, slots, strict=True):
            self._slot_of[chunk] = slot
            self._chunk_in[slot] = chunk
            self._last_use[slot] = self._clock

    def _decode_all(
        self, chunks: list[int], places: list[npt.NDArray[np.uint8]]
    ) -> None:
        # Looked at within a batch too: each chunk may bring in a huge page, of 2 MiB.
        for first in range(0, len(chunks), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            self._decode_some(chunks[part], places[part])

    def _decode_some(
        self, chunks: list[int], places: list[npt.NDArray[np.uint8]]
    ) -> None:
        if self._watch.is_over(len(chunks) * max(self._format.chunk_bytes, _HUGE_PAGE)):
            self.forget_pages()
        per_shard = self._format.shard_rows // self._format.chunk_rows
        shards = [self._shard(chunk // per_shard) for chunk in chunks]
        numbers = [chunk % per_shard for chunk in chunks]
        run = map if self._pool is None else self._pool.map
        for _ in run(self._decode_into, shards, numbers, places):
            pass

    def _decode_into(
        self, shard: _Shard, number: int, place: npt.NDArray[np.uint8]
    ) -> None:
        offset, length = shard.where[number]
        if offset == _ABSENT:
            place[:] = self._fill
            return
        try:
            self._decode(shard.data[offset : offset + length], place)
        except (ValueError, RuntimeError) as error:
            raise DamagedError.of(
                shard.path, f"has chunk {number} that cannot be decoded ({error})"
            ) from error

    def _shard(self, number: int) -> _Shard:
        if number not in self._shards:
            self._shards[number] = self._open(number)
            if len(self._shards) > _MAPPED_SHARDS:
                self._shards.popitem(last=False)
        return self._shards[number]

    def _open(self, number: int) -> _Shard:
        path = self._folder / self._format.shard_key(number)
        handle = open_shard(path)
        try:
            index = read_index(path, handle, self._format.shard_layout)
            mapped = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(handle)
        return _Shard(path, mapped, memoryview(mapped), index.tolist())
