"""Hashing every file of a version, and telling where a damaged one is damaged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from hpcplat.datasets.array_format import ArrayFormat, read_array_format
from hpcplat.datasets.damage import DamagedError
from hpcplat.datasets.flat import open_shard
from hpcplat.datasets.manifest import FILE_NAME, FileEntry, Manifest, read_manifest
from hpcplat.datasets.shard import read_index
from hpcplat.errors import HpcplatError
from storage.writing import CHECKSUMS, checksums_of

_BLOCK = 4 * 2**20

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that is not what was written, and where, as precisely as can be told."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


def verify(
    folder: Path, threads: int, progress: Progress = lambda done, total: None
) -> list[Fault]:
    """Read and hash all files of a version; returns the faults, by path.

    Raises DamagedError when the manifest itself is not what was written. ``progress``
    gets bytes done and bytes in all.
    """
    manifest = read_manifest(folder)
    if folder.name != manifest.digest and len(folder.name) == len(manifest.digest):
        raise DamagedError.of(folder / FILE_NAME, "belongs to another version")
    entries = manifest.content.files
    total = sum(entry.size for entry in entries.values())
    faults, done = [], 0
    with ThreadPoolExecutor(threads) as pool:
        jobs = ((folder, name, entry) for name, entry in entries.items())
        found = pool.map(lambda job: _file_fault(*job), jobs)
        for entry, fault in zip(entries.values(), found, strict=True):
            done += entry.size
            progress(done, total)
            faults += [] if fault is None else [fault]
    return sorted([*faults, *_strangers(folder, manifest)], key=str)


def _file_fault(folder: Path, name: str, entry: FileEntry) -> Fault | None:
    path = folder / name
    try:
        size = path.stat().st_size
        found = hash_of(path)
    except FileNotFoundError:
        return Fault(name, "is missing")
    except OSError as error:
        return Fault(name, f"cannot be read ({error.strerror})")
    if size != entry.size:
        return Fault(name, f"is {size} bytes instead of {entry.size}")
    if found != entry.sha256:
        return Fault(name, "; ".join(_places(folder, name)) or "has other bytes")
    return None


def hash_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    block = bytearray(_BLOCK)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(memoryview(block)[:count])
    return digest.hexdigest()


def _places(folder: Path, name: str) -> Iterator[str]:
    """Tell which chunks of a damaged shard differ, by their own checksums."""
    array = (folder / name).parent
    if not PurePosixPath(name).name.startswith("c."):
        return
    try:
        layout = read_array_format(array)
        sums = np.fromfile(array / CHECKSUMS, "<u4")
        yield from _damaged_chunks(folder / name, layout, sums)
    except HpcplatError as error:  # the index or the description is damaged as well
        yield error.what.partition(" ")[2].rstrip(".")
    except (OSError, ValueError):  # the checksums are gone: the file's hash must do
        return


def _damaged_chunks(path: Path, layout: ArrayFormat, sums: np.ndarray) -> Iterator[str]:
    shard = int(path.name.split(layout.separator)[1])
    handle = open_shard(path)
    try:
        index = read_index(path, handle, layout.shard_layout)
        needed = layout.chunks_in(shard)
        first = shard * layout.shard_layout.chunks
        for number, (offset, length) in enumerate(index[:needed].tolist()):
            stored = memoryview(os.pread(handle, length, offset))
            found = checksums_of(stored, np.array([length], np.uint64))[0]
            if found != sums[first + number]:
                row = shard * layout.shard_rows + number * layout.chunk_rows
                last = min(row + layout.chunk_rows, layout.rows) - 1
                yield (
                    f"differs in bytes {offset} to {offset + length - 1}: "
                    f"rows {row} to {last}"
                )
    finally:
        os.close(handle)


def _strangers(folder: Path, manifest: Manifest) -> Iterator[Fault]:
    known = {*manifest.content.files, FILE_NAME}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name not in known and not path.is_dir():
            yield Fault(name, "does not belong to the version")
