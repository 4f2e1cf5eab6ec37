"""Writing arrays: rows go in, whole shards with their hashes come out."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from hpcplat import files
from hpcplat.datasets.array import Array
from hpcplat.datasets.array_format import ArrayFormat, Codec, to_zarr_json
from hpcplat.datasets.codecs import encoder
from hpcplat.datasets.manifest import FileEntry
from hpcplat.datasets.shard import ABSENT, encode_index
from hpcplat.errors import InvalidError, UnavailableError
from storage.layout import Layout, layout_of

# Beside an array: the crc32c of each chunk as it is stored, so that damage can be told
# to the row.
CHECKSUMS = "checksums"

_BLOCK = 4 * 2**20

Sizes = npt.NDArray[np.uint64]


@contextmanager
def disk_of(folder: Path) -> Iterator[None]:
    """Turn a full disk or quota into an error that says so."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UnavailableError(
            f"The disk under {folder} is full; nothing was published.",
            "Free some space and run the command again: it goes on where it stopped.",
        ) from error


class _Shard:
    """One shard file that is being written, aside."""

    def __init__(self, path: Path, chunks: int) -> None:
        self._path = path
        self._aside = path.with_name(f".{path.name}.partial")
        self._file = self._aside.open("wb", buffering=0)
        self._hash = hashlib.sha256()
        self._index = np.full((chunks, 2), ABSENT, dtype=np.uint64)
        self._offset = 0

    def write(self, data: memoryview) -> None:
        """Append payload bytes."""
        left = data
        while left:
            left = left[self._file.write(left) :]
        self._hash.update(data)
        self._offset += len(data)

    def mark_chunks(self, first: int, lengths: Sizes) -> None:
        """Note that chunks of these lengths, from number ``first``, come next."""
        ends = self._offset + np.cumsum(lengths, dtype=np.uint64)
        self._index[first : first + len(lengths), 0] = ends - lengths
        self._index[first : first + len(lengths), 1] = lengths

    def close(self) -> FileEntry:
        """Write the index, flush to disk and give the file its name."""
        self.write(memoryview(encode_index(self._index)))
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._aside.replace(self._path)
        return FileEntry(size=self._offset, sha256=self._hash.hexdigest())

    def drop(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._aside.unlink(missing_ok=True)


class ArrayWriter:
    """Writes one array, a shard after the other; memory: one block of some MiB.

    ``append`` takes rows (n, …); ``close`` returns the files written, by their path
    under the array's folder. The number of rows need not be known beforehand.
    """

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype[Any],
        row_shape: tuple[int, ...] = (),
        *,
        layout: Layout | None = None,
        compressors: tuple[Codec, ...] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        probe = ArrayFormat((0, *row_shape), dtype, 1, 1)
        chosen = layout or layout_of(max(probe.row_bytes, 1))
        self._folder = folder
        self._format = ArrayFormat(
            shape=(0, *row_shape),
            dtype=dtype.newbyteorder("<"),
            chunk_rows=chosen.chunk_rows,
            shard_rows=chosen.shard_rows,
            compressors=compressors,
            attributes=attributes or {},
        )
        self._encode = encoder(compressors)
        # Rows gather here until they make a write that is worth it: the kernel keeps
        # a file that was written in large pieces in large pages, which read faster.
        chunks = max(1, _BLOCK // max(self._format.chunk_bytes, 1))
        block_rows = min(chosen.shard_rows, chosen.chunk_rows * chunks)
        self._block = np.zeros((block_rows, *row_shape), dtype=self._format.dtype)
        self._filled = 0
        self._rows = 0
        self._shard: _Shard | None = None
        self._files: dict[str, FileEntry] = {}
        self._checksums: list[npt.NDArray[np.uint32]] = []
        folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def continuing(
        cls, folder: Path, old: Path, old_files: Mapping[str, FileEntry]
    ) -> ArrayWriter:
        """Begin with all rows of the array in ``old``, whose full shards are shared.

        ``old_files`` are its files by path under its folder. Shards become hard links
        where the file system has them, else copies. Layout and codecs stay.
        """
        array = Array(old)
        writer = cls(
            folder,
            array.dtype,
            array.format.row_shape,
            layout=Layout(array.format.chunk_rows, array.format.shard_rows),
            compressors=array.format.compressors,
            attributes=array.format.attributes,
        )
        full = len(array) // array.format.shard_rows
        for key in map(array.format.shard_key, range(full)):
            link_or_copy(old / key, folder / key)
            writer._files[key] = old_files[key]
        writer._rows = full * array.format.shard_rows
        chunks = full * array.format.shard_layout.chunks
        writer._checksums = [np.fromfile(old / CHECKSUMS, "<u4", chunks)]
        writer.append(array.slice(writer._rows, len(array)))
        return writer

    @property
    def rows(self) -> int:
        """Rows appended so far."""
        return self._rows + self._filled

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Append rows of the array's shape and type."""
        given = rows.dtype.newbyteorder("<"), rows.shape[1:]
        if given != (self._format.dtype, self._format.row_shape):
            raise InvalidError(
                f"Rows of {rows.dtype} {rows.shape[1:]} do not fit in "
                f"{self._folder.name} ({self._format.dtype} {self._format.row_shape}).",
                "Give all rows one type and shape.",
            )
        data = np.ascontiguousarray(rows, dtype=self._format.dtype)
        size = len(self._block)
        start = min(size - self._filled, len(data)) if self._filled else 0
        self._fill(data[:start])
        whole = (len(data) - start) // size * size
        self._write_chunks(data[start : start + whole])
        self._fill(data[start + whole :])

    def close(self) -> dict[str, FileEntry]:
        """Write what is left and ``zarr.json``; return the files by their path."""
        rows = self.rows
        size = self._format.chunk_rows
        padded = -(-self._filled // size) * size
        self._block[self._filled : padded] = 0
        self._write_chunks(self._block[:padded])
        self._filled = 0
        self._close_shard()
        self._rows = rows  # without the padding of the last chunk
        self._add("zarr.json", to_zarr_json(self.format()).encode())
        sums = np.concatenate([np.empty(0, "<u4"), *self._checksums])
        self._add(CHECKSUMS, sums.astype("<u4").tobytes())
        return self._files

    def _add(self, name: str, content: bytes) -> None:
        files.write_whole(self._folder / name, content)
        self._files[name] = entry_of(content)

    def format(self) -> ArrayFormat:
        """Return the array's format with its present number of rows."""
        shape = (self.rows, *self._format.row_shape)
        old = self._format
        return ArrayFormat(
            shape,
            old.dtype,
            old.chunk_rows,
            old.shard_rows,
            old.compressors,
            attributes=old.attributes,
        )

    def drop(self) -> None:
        """Close what is open, without finishing it."""
        if self._shard is not None:
            self._shard.drop()

    def _fill(self, rows: npt.NDArray[Any]) -> None:
        self._block[self._filled : self._filled + len(rows)] = rows
        self._filled += len(rows)
        if self._filled == len(self._block):
            self._filled = 0
            self._write_chunks(self._block)

    def _write_chunks(self, rows: npt.NDArray[Any]) -> None:
        """Write rows that make whole chunks, into as many shards as it takes."""
        while len(rows):
            place = self._rows % self._format.shard_rows
            if place == 0:
                self._close_shard()
                self._open_shard()
            here = rows[: self._format.shard_rows - place]
            self._write_in_shard(here, place // self._format.chunk_rows)
            self._rows += len(here)
            rows = rows[len(here) :]

    def _write_in_shard(self, rows: npt.NDArray[Any], first_chunk: int) -> None:
        if self._shard is None:
            raise AssertionError("no shard is open")
        raw = rows.data.cast("B")
        size = self._format.chunk_bytes
        lengths = np.full(len(raw) // size, size, dtype=np.uint64)
        if self._format.compressors:
            # Typed values, not bytes: blosc shuffles by their size.
            chunks = np.split(rows, len(lengths))
            encoded = [self._encode(chunk) for chunk in chunks]
            lengths = np.array([len(one) for one in encoded], dtype=np.uint64)
            raw = memoryview(b"".join(encoded))
        self._checksums.append(checksums_of(raw, lengths))
        self._shard.mark_chunks(first_chunk, lengths)
        self._shard.write(raw)

    def _open_shard(self) -> None:
        number = self._rows // self._format.shard_rows
        path = self._folder / self._format.shard_key(number)
        self._shard = _Shard(path, self._format.shard_layout.chunks)

    def _close_shard(self) -> None:
        if self._shard is None:
            return
        number = (self._rows - 1) // self._format.shard_rows
        self._files[self._format.shard_key(number)] = self._shard.close()
        self._shard = None


def checksums_of(stored: memoryview, lengths: Sizes) -> npt.NDArray[np.uint32]:
    """Return the crc32c of chunks that lie one after the other."""
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    starts = [0, *ends[:-1]]
    pieces = zip(starts, ends, strict=True)
    whole = np.frombuffer(stored, np.uint8)
    sums = [google_crc32c.value(whole[a:b]) for a, b in pieces]
    return np.array(sums, dtype=np.uint32)


def link_or_copy(source: Path, target: Path) -> None:
    """Share a file that never changes by a hard link, or copy it."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


def entry_of(content: bytes) -> FileEntry:
    """Return size and hash of a small file's content."""
    return FileEntry(size=len(content), sha256=hashlib.sha256(content).hexdigest())
