"""One array of a dataset version, opened for reading."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.array_format import ArrayFormat, read_array_format
from hpcplat.datasets.chunked import Bounds, ChunkedRows
from hpcplat.datasets.flat import FlatRows, NotFlatError, Rows, can_be_flat
from hpcplat.errors import InvalidError

T = TypeVar("T")

DECODED_BYTES = 64 * 2**20
RESIDENT_BYTES = 8 * 2**30


class RowSource(Protocol):
    """What can hand out rows of one array."""

    def all_rows(self) -> npt.NDArray[Any]:
        """Return the whole array."""
        ...

    def slice(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return rows start … stop-1."""
        ...

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        """Copy single rows."""
        ...

    def windows(self, starts: Rows, width: int) -> npt.NDArray[Any]:
        """Copy stretches of a one-dimensional array."""
        ...

    def forget_pages(self) -> None:
        """Let go of memory that can be read again."""
        ...


class Array:
    """A sharded array: ``shape``, ``dtype`` and rows, at the speed of memory.

    Opening reads ``zarr.json`` only. ``memory_bytes`` bounds the pages of files that
    stay resident (8 GiB if not given; the kernel takes them back when it needs to, all
    the same) and the decoded chunks that are kept (64 MiB). ``threads`` decode
    compressed chunks.
    """

    def __init__(
        self,
        folder: Path,
        *,
        memory_bytes: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.folder = folder
        self.format: ArrayFormat = read_array_format(folder)
        self._memory_bytes = memory_bytes
        self._threads = threads or min(os.cpu_count() or 1, 8)
        self._lock = Lock()
        self._source: RowSource = self._first_source()

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, …)."""
        return self.format.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values that are handed out, in this machine's byte order."""
        return self.format.dtype.newbyteorder("=")

    def __len__(self) -> int:
        return self.format.rows

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        """Travel to another process as the path."""
        return _reopen, (self.folder, self._memory_bytes, self._threads)

    def all_rows(self) -> npt.NDArray[Any]:
        """Return the whole array: a read-only view where it is not compressed."""
        return self._read(lambda source: source.all_rows())

    def slice(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return rows start … stop-1, shape (stop-start, …); a view if uncompressed.

        Raises InvalidError outside of the array.
        """
        if not 0 <= start <= stop <= len(self):
            raise self._outside(f"rows {start} to {stop}")
        return self._read(lambda source: source.slice(start, stop))

    def take(self, rows: npt.ArrayLike) -> npt.NDArray[Any]:
        """Copy rows by number, in any order, shape (n, …).

        Raises InvalidError outside of the array.
        """
        numbers = self._inside(rows, 1)
        return self._read(lambda source: source.take(numbers))

    def windows(self, starts: npt.ArrayLike, width: int) -> npt.NDArray[Any]:
        """Copy ``width`` values from each start of a one-dimensional array: (n, width).

        Raises InvalidError outside of the array.
        """
        numbers = self._inside(starts, width)
        return self._read(lambda source: source.windows(numbers, width))

    def _first_source(self) -> RowSource:
        if can_be_flat(self.format):
            try:
                kept = self._memory_bytes or RESIDENT_BYTES
                return FlatRows(self.folder, self.format, kept)
            except OSError:  # addresses are limited (ulimit -v): read piece by piece
                return self._chunked()
        return self._chunked()

    def _chunked(self) -> ChunkedRows:
        bounds = Bounds(
            decoded=self._memory_bytes or DECODED_BYTES,
            resident=self._memory_bytes or RESIDENT_BYTES,
        )
        return ChunkedRows(self.folder, self.format, bounds, self._threads)

    def _read(
        self, action: Callable[[RowSource], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        try:
            found = action(self._source)
        except NotFlatError:
            with self._lock:
                if isinstance(self._source, FlatRows):
                    self._source = self._chunked()
            found = action(self._source)
        return found if found.dtype.isnative else found.astype(self.dtype)

    def _inside(self, rows: npt.ArrayLike, width: int) -> Rows:
        numbers = np.asarray(rows, dtype=np.int64)
        # Seen as unsigned, a negative number is a very large one: one look suffices.
        largest = int(numbers.view(np.uint64).max(initial=0))
        if len(numbers) and largest > len(self) - width:
            raise self._outside(f"row {int(numbers.max())}")
        return numbers

    def _outside(self, what: str) -> InvalidError:
        return InvalidError(
            f"{what} of {self.folder} was asked for, but it has {len(self)} rows.",
            "Ask for rows within it.",
        )


def _reopen(folder: Path, memory_bytes: int | None, threads: int) -> Array:
    return Array(folder, memory_bytes=memory_bytes, threads=threads)
