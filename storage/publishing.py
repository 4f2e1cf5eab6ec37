"""Making versions: a draft beside the published ones, then one rename."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from hpcplat import files
from hpcplat.datasets.codecs import compressors
from hpcplat.datasets.manifest import (
    FILE_NAME,
    ArraySchema,
    Content,
    FileEntry,
    Kind,
    Manifest,
    SplitSchema,
    read_manifest,
)
from hpcplat.datasets.names import LATEST, DatasetPaths, check_name
from hpcplat.errors import ConflictError, InvalidError
from storage.layout import SHARD_BYTES, layout_of
from storage.writing import ArrayWriter, entry_of


@contextmanager
def changing(root: Path, name: str) -> Iterator[DatasetPaths]:
    """Hold the dataset's lock: one writer at a time.

    The lock goes with the process, also when it is killed. Raises ConflictError
    when somebody else holds it.
    """
    paths = DatasetPaths.under(root, name)
    paths.versions.mkdir(parents=True, exist_ok=True)
    handle = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(handle, name)
        os.ftruncate(handle, 0)
        os.pwrite(
            handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0
        )
        yield paths
    finally:
        os.close(handle)


def _lock(handle: int, name: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            return  # a file system without locks: the rename still keeps all whole
        holder = os.pread(handle, 200, 0).decode(errors="replace") or "somebody"
        raise ConflictError(
            f"{name} is being changed by {holder}.", "Wait for it to end."
        ) from error


def clear_drafts(paths: DatasetPaths) -> None:
    """Remove all unfinished work, out of sight by one rename.

    A kill in the middle must not leave a folder that looks whole and is not.
    """
    gone = paths.folder / "removed"
    shutil.rmtree(gone, ignore_errors=True)
    if paths.drafts.exists():
        paths.drafts.rename(gone)
        shutil.rmtree(gone)


class Draft:
    """A version that is being written: splits of arrays, extra files, then publish.

    ``parent`` is the digest of a version of the same dataset to add to; its arrays
    are continued.
    """

    def __init__(
        self,
        paths: DatasetPaths,
        label: str,
        kind: Kind,
        *,
        parent: str = "",
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.folder = paths.drafts / label
        self._paths = paths
        self._kind: Kind = kind
        self._shard_bytes = shard_bytes
        self.parent = read_manifest(paths.version(parent)) if parent else None
        if self.parent is not None and self.parent.content.kind != kind:
            raise InvalidError(
                f"The dataset holds {self.parent.content.kind}, not {kind}.",
                "Choose another name.",
            )
        self._arrays: dict[str, dict[str, ArrayWriter]] = {}
        self._samples: dict[str, int] = {}
        self._files: dict[str, FileEntry] = {}
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)

    def array(
        self,
        split: str,
        name: str,
        dtype: np.dtype[Any],
        row_shape: tuple[int, ...] = (),
        compressor: str = "none",
    ) -> ArrayWriter:
        """Begin an array; it holds the parent's rows already, if there is a parent."""
        path = f"{check_name(split, 'split')}/{check_name(name, 'array')}"
        writer = self._continued(path, dtype, row_shape)
        if writer is None:
            row_bytes = dtype.itemsize * math.prod(row_shape)
            writer = ArrayWriter(
                self.folder / path,
                dtype,
                row_shape,
                layout=layout_of(max(row_bytes, 1), shard_bytes=self._shard_bytes),
                compressors=compressors(compressor, dtype.itemsize),
            )
        self._arrays.setdefault(split, {})[name] = writer
        return writer

    def _continued(
        self, path: str, dtype: np.dtype[Any], row_shape: tuple[int, ...]
    ) -> ArrayWriter | None:
        """Begin with the parent's array, if it has this one."""
        if self.parent is None:
            return None
        split, _, name = path.partition("/")
        known = self.parent.content.splits.get(split)
        if known is None or name not in known.arrays:
            return None
        old = known.arrays[name]
        if (old.dtype, old.shape[1:]) != (dtype.name, row_shape):
            raise InvalidError(
                f"{path} holds {old.dtype} {old.shape[1:]}, not {dtype.name} {row_shape}.",
                "Append data of the same type and shape, or make a new dataset.",
            )
        files_of = self.parent.content.files.items()
        prefix = f"{path}/"
        entries = {n[len(prefix) :]: e for n, e in files_of if n.startswith(prefix)}
        folder = self._paths.version(self.parent.digest) / path
        return ArrayWriter.continuing(self.folder / path, folder, entries)

    def set_samples(self, split: str, samples: int) -> None:
        """Say how many documents, images or rows a split holds."""
        self._samples[split] = samples

    def parent_file(self, name: str) -> bytes | None:
        """Return a small file of the parent; None if it has none of this name."""
        if self.parent is None or name not in self.parent.content.files:
            return None
        return (self._paths.version(self.parent.digest) / name).read_bytes()

    def add_file(self, name: str, content: bytes) -> None:
        """Add a small file, such as a tokenizer."""
        files.write_whole(self.folder / name, content)
        self._files[name] = entry_of(content)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.drop()

    def drop(self) -> None:
        """Remove the draft; nothing of it was ever seen."""
        for arrays in self._arrays.values():
            for writer in arrays.values():
                writer.drop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def publish(
        self,
        attributes: Mapping[str, Any],
        provenance: Mapping[str, Any],
        *,
        tags: Sequence[str] = (),
    ) -> Manifest:
        """Finish all arrays and make the version visible by one rename.

        The same content again is the same version: then only the tags move.
        """
        self._keep_untouched_splits()
        splits = {name: self._close_split(name) for name in self._arrays}
        self._add_groups({"hpcplat": {"kind": self._kind, **attributes}})
        content = Content(
            kind=self._kind, attributes=attributes, splits=splits, files=self._files
        )
        parent = None if self.parent is None else self.parent.digest
        manifest = Manifest(content=content, provenance=provenance, parent=parent)
        files.write_whole(self.folder / FILE_NAME, manifest.to_json(), 0o444)
        self._rename(manifest.digest)
        for tag in (*tags, LATEST):
            write_tag(self._paths, tag, manifest.digest)
        return manifest

    def _keep_untouched_splits(self) -> None:
        """Bring over the parent's splits to which nothing was added."""
        if self.parent is None:
            return
        for split, schema in self.parent.content.splits.items():
            if split in self._arrays:
                continue
            for name, array in schema.arrays.items():
                self.array(split, name, np.dtype(array.dtype), array.shape[1:])
            self.set_samples(split, schema.samples)

    def _close_split(self, split: str) -> SplitSchema:
        schemas = {}
        for name, writer in self._arrays[split].items():
            found = writer.close()
            self._files |= {f"{split}/{name}/{path}": e for path, e in found.items()}
            array = writer.format()
            schemas[name] = ArraySchema(dtype=array.dtype.name, shape=array.shape)
        return SplitSchema(samples=self._samples[split], arrays=schemas)

    def _add_groups(self, attributes: Mapping[str, Any]) -> None:
        for folder in ("", *(f"{split}/" for split in self._arrays)):
            text = group_json({} if folder else attributes)
            self.add_file(f"{folder}zarr.json", text.encode())

    def _rename(self, digest: str) -> None:
        for path in (self.folder, *self.folder.rglob("*")):
            if path.is_dir():
                files.sync_folder(path)
            elif path.stat().st_mode & 0o222:
                path.chmod(0o444)
        target = self._paths.version(digest)
        if target.exists():
            shutil.rmtree(self.folder)
            return
        self.folder.rename(target)
        files.sync_folder(self._paths.versions)


def group_json(attributes: Mapping[str, Any]) -> str:
    """Return the ``zarr.json`` of a group."""
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def write_tag(paths: DatasetPaths, tag: str, digest: str) -> None:
    """Let a tag stand for a version."""
    paths.tags.mkdir(exist_ok=True)
    files.write_whole(paths.tags / check_name(tag, "tag"), digest + "\n")
