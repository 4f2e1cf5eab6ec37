"""A dataset version opened for reading: its manifest, splits and arrays."""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcplat.datasets.array import Array
from hpcplat.datasets.damage import DamagedError, RemovedError
from hpcplat.datasets.manifest import (
    FILE_NAME,
    ArraySchema,
    Manifest,
    SplitSchema,
    read_manifest,
)
from hpcplat.datasets.store import locate
from hpcplat.errors import NotFoundError


class Split:
    """One split of a version: its arrays by name, and the version's attributes."""

    def __init__(self, version: DatasetVersion, name: str, schema: SplitSchema) -> None:
        self.version = version
        self.name = name
        self.samples = schema.samples
        self._arrays = {
            array: _checked(version.open_array(f"{name}/{array}"), known)
            for array, known in schema.arrays.items()
        }

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Tokenizer, vocabulary size, class names … of the version."""
        return self.version.manifest.content.attributes

    @property
    def names(self) -> Sequence[str]:
        """Names of the arrays."""
        return list(self._arrays)

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            raise NotFoundError(
                f"Split {self.name} has no array {name}.",
                f"It has: {', '.join(self._arrays)}.",
            )
        return self._arrays[name]


class DatasetVersion:
    """An immutable version of a dataset.

    ``memory_bytes`` and ``threads`` are handed to each array. While it is open, a
    shared lock on the manifest keeps `hpcplat data rm` away.
    """

    def __init__(
        self,
        folder: Path,
        *,
        memory_bytes: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.folder = folder
        _hold(self, folder / FILE_NAME)  # first: nobody removes what is looked at
        self.manifest: Manifest = read_manifest(folder)
        self._memory_bytes = memory_bytes
        self._threads = threads
        _check_sizes(folder, self.manifest)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process as the path."""
        return _reopen, (self.folder, self._memory_bytes, self._threads)

    @cached_property
    def digest(self) -> str:
        """The version's name: 64 hexadecimal digits."""
        return self.manifest.digest

    @property
    def kind(self) -> str:
        """Tokens, images or columns."""
        return self.manifest.content.kind

    @property
    def splits(self) -> Sequence[str]:
        """Names of the splits."""
        return list(self.manifest.content.splits)

    def split(self, name: str) -> Split:
        """Open a split. Raises NotFoundError when there is none of this name."""
        splits = self.manifest.content.splits
        if name not in splits:
            raise NotFoundError(
                f"{self.folder} has no split {name}.", f"It has: {', '.join(splits)}."
            )
        return Split(self, name, splits[name])

    def open_array(self, path: str) -> Array:
        """Open the array at ``split/name``."""
        return Array(
            self.folder / path,
            memory_bytes=self._memory_bytes,
            threads=self._threads,
        )


def _checked(array: Array, known: ArraySchema) -> Array:
    """Refuse an array whose own description is not that of the manifest."""
    if (array.dtype.name, array.shape) != (known.dtype, known.shape):
        raise DamagedError.of(
            array.folder,
            f"is {array.dtype.name} {array.shape} instead of {known.dtype} {known.shape}",
        )
    return array


def _reopen(
    folder: Path, memory_bytes: int | None, threads: int | None
) -> DatasetVersion:
    return DatasetVersion(folder, memory_bytes=memory_bytes, threads=threads)


def _check_sizes(folder: Path, manifest: Manifest) -> None:
    """Refuse a version with a missing or truncated file before anything is read."""
    base = f"{folder}/"
    for name, entry in manifest.content.files.items():
        try:
            size = os.stat(base + name).st_size  # noqa: PTH116 (thousands of files)
        except FileNotFoundError as error:
            raise DamagedError.of(folder / name, "is missing") from error
        if size != entry.size:
            fault = f"is {size} bytes instead of {entry.size}"
            raise DamagedError.of(folder / name, fault)


def _hold(owner: DatasetVersion, path: Path) -> None:
    """Keep a shared lock as long as ``owner`` lives.

    Raises DamagedError without a manifest, RemovedError for a version that goes.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedError.of(path, "is missing") from error
    weakref.finalize(owner, os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RemovedError.of(path.parent) from error
    except OSError:  # no locks on this file system
        return
    if not _is_still(path, handle):
        raise RemovedError.of(path.parent)


def _is_still(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def open_version(
    name_or_path: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    staged: str | os.PathLike[str] | None = None,
    memory_bytes: int | None = None,
    threads: int | None = None,
) -> DatasetVersion:
    """Open ``name``, ``name@tag``, ``name@digest`` or the path of a version's folder.

    ``root`` is the folder of all datasets (default: the person's own). ``staged`` is a
    folder of copies on this node's disk: the version is read there if it is there.
    """
    folder = locate(name_or_path, None if root is None else Path(root))
    copy = None if staged is None else Path(staged) / folder.name
    if copy is not None and (copy / FILE_NAME).is_file():
        try:
            return DatasetVersion(copy, memory_bytes=memory_bytes, threads=threads)
        except RemovedError:  # it has just made room for another
            pass
    return DatasetVersion(folder, memory_bytes=memory_bytes, threads=threads)
