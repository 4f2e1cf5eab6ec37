"""Uncompressed shards as one flat array: reading is a copy out of mapped memory."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.address_range import AddressRange
from hpcplat.datasets.array_format import ArrayFormat
from hpcplat.datasets.damage import DamagedError
from hpcplat.datasets.resident import ResidentWatch
from hpcplat.datasets.shard import is_back_to_back, read_index
from hpcplat.errors import UnavailableError

Rows = npt.NDArray[np.int64]


class NotFlatError(Exception):
    """The chunks of a shard do not lie back to back; the shard is whole all the same."""


def can_be_flat(array: ArrayFormat) -> bool:
    """Say whether shards follow each other in memory without a gap."""
    whole_pages = array.shard_bytes % os.sysconf("SC_PAGE_SIZE") == 0
    return (
        not array.compressors
        and array.index_at_end
        and array.row_bytes > 0
        and (array.shards == 1 or whole_pages)
    )


class FlatRows:
    """The rows of an uncompressed array in one stretch of addresses.

    A shard is opened, checked and mapped when a row of it is first asked for.
    Raises NotFlatError then if another writer has laid its chunks out otherwise.
    ``memory_bytes`` bounds the pages of files that this process holds resident.
    """

    def __init__(self, folder: Path, array: ArrayFormat, memory_bytes: int) -> None:
        self._folder = folder
        self._watch = ResidentWatch(memory_bytes)
        self._format = array
        total = array.shards * array.shard_bytes
        self._range = AddressRange(total)
        # Around a page that is missing the kernel reads up to some MiB more. That
        # fills the page cache quickly, but of what will not stay there it is waste:
        # then it is told just what a batch needs, all of it at once.
        self._is_large = total > _memory() // 2
        self._mapped = np.zeros(array.shards, dtype=bool)
        self._all_mapped = False
        self._stretches: dict[int, npt.NDArray[np.void]] = {}
        flat = np.asarray(self._range)[: array.rows * array.row_bytes]
        self._rows: npt.NDArray[Any] = flat.view(array.dtype).reshape(array.shape)

    def all_rows(self) -> npt.NDArray[Any]:
        """Return the whole array, read-only, without reading it."""
        self._map(np.arange(self._format.shards))
        return self._rows

    def slice(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return rows start … stop-1 as a read-only view."""
        if stop > start:
            first, last = start // self._format.shard_rows, stop - 1
            self._map(np.arange(first, last // self._format.shard_rows + 1))
            self._begin_to_read(np.array([start]), stop - start)
        return self._rows[start:stop]

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        """Copy rows of the first axis: shape (n, …)."""
        self._map_for(rows, 1)
        self._begin_to_read(rows, 1)
        return self._rows[rows]

    def windows(self, starts: Rows, width: int) -> npt.NDArray[Any]:
        """Copy stretches of a one-dimensional array: shape (n, width)."""
        self._map_for(starts, width)
        self._begin_to_read(starts, width)
        found = self._sliding(width)[starts]
        return found.view(self._format.dtype).reshape(len(starts), width)

    def forget_pages(self) -> None:
        """Take the pages read so far out of the resident set."""
        self._range.forget_pages()

    def _begin_to_read(self, starts: Rows, width: int) -> None:
        size = width * self._format.row_bytes
        if self._watch.is_over(len(starts) * size):
            self.forget_pages()
        if self._is_large:
            for start in starts.tolist():
                self._range.will_need(start * self._format.row_bytes, size)

    def _map_for(self, starts: Rows, width: int) -> None:
        if self._all_mapped:
            return
        self._map(starts // self._format.shard_rows)
        if width > 1:
            last = starts + (width - 1)
            # A wide stretch may lie over more shards than its two ends.
            for place in range(
                self._format.shard_rows, width - 1, self._format.shard_rows
            ):
                self._map((starts + place) // self._format.shard_rows)
            self._map(last // self._format.shard_rows)

    def _sliding(self, width: int) -> npt.NDArray[np.void]:
        if width not in self._stretches:
            self._stretches[width] = stretches_of(self._rows, width)
        return self._stretches[width]

    def _map(self, shards: Rows) -> None:
        if self._all_mapped or self._mapped[shards].all():
            return
        # Not np.unique: its first use loads numpy.ma, which costs more than the rest.
        for shard in sorted(set(shards[~self._mapped[shards]].tolist())):
            self._map_one(shard)
            self._mapped[shard] = True
        self._all_mapped = bool(self._mapped.all())

    def _map_one(self, shard: int) -> None:
        array = self._format
        path = self._folder / array.shard_key(shard)
        handle = open_shard(path)
        try:
            index = read_index(path, handle, array.shard_layout)
            needed = array.chunks_in(shard)
            if not is_back_to_back(index, array.chunk_bytes, needed):
                raise NotFlatError(path)
            self._place(handle, shard * array.shard_bytes, needed * array.chunk_bytes)
        finally:
            os.close(handle)

    def _place(self, handle: int, offset: int, length: int) -> None:
        try:
            self._range.place(handle, offset, length)
            if self._is_large:
                self._range.expect_random(offset, length)
        except OSError as error:
            raise UnavailableError(
                f"{self._folder} cannot be mapped into memory ({error.strerror}).",
                "Raise vm.max_map_count, or ingest with larger shards.",
            ) from error


def stretches_of(values: npt.NDArray[Any], width: int) -> npt.NDArray[np.void]:
    """Return all stretches of this width of a flat array, each as one opaque value.

    NumPy copies single values of a one-dimensional array faster than rows of a
    two-dimensional one, by a seventh.
    """
    return np.ndarray(
        (max(len(values) - width + 1, 0),),
        dtype=np.dtype((np.void, width * values.itemsize)),
        buffer=values.data,
        strides=(values.itemsize,),
    )


@cache
def _memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def open_shard(path: Path) -> int:
    """Open a shard file for reading and return its handle."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DamagedError.of(path, "is missing") from error
