"""A part: what one task gave, in a folder that appears whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from hpcplat import files
from hpcplat.errors import InvalidError
from storage.ingest.options import Splitting

ABOUT = "about.json"
NAMES = "names"

Values = npt.NDArray[Any]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Names:
    """What is known of each of n samples, in order.

    ``hashes`` (n, 2) name the content, ``keys`` (n,) decide the split, ``strata`` (n,)
    the stratum.
    """

    hashes: Hashes
    keys: Hashes
    strata: Hashes


def name_of(content: bytes, fields: Mapping[str, Any], splitting: Splitting) -> bytes:
    """Return a sample's names as 32 bytes: content (16), key (8), stratum (8)."""
    name = hashlib.blake2b(content, digest_size=16).digest()
    key = str(fields.get(splitting.key)).encode() if splitting.key else name
    stratum = str(fields.get(splitting.strata)) if splitting.strata else ""
    return name + short_hash(key, splitting.seed) + short_hash(stratum.encode(), 0)


def short_hash(content: bytes, seed: int) -> bytes:
    """Return 8 bytes that depend on content and seed."""
    salt = (seed % 2**64).to_bytes(8, "little")
    return hashlib.blake2b(content, digest_size=8, salt=salt).digest()


def names_from(raw: Sequence[bytes]) -> Names:
    """Return the names of samples from the bytes of ``name_of``."""
    table = np.frombuffer(b"".join(raw), "<u8").reshape(len(raw), 4)
    return Names(table[:, :2], table[:, 2], table[:, 3])


def part_folder(work: Path, number: int) -> Path:
    """Return where the part of a task lies."""
    return work / "parts" / f"{number:07}"


class PartWriter:
    """Writes a part piece by piece, aside; ``close`` makes it appear.

    Arrays are raw little-endian rows; their types are in ``about.json``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(self._aside, ignore_errors=True)
        self._aside.mkdir(parents=True)
        self._files: dict[str, IO[bytes]] = {}
        self._types: dict[str, tuple[str, tuple[int, ...]]] = {}

    def append(self, arrays: Mapping[str, Values], names: Sequence[bytes]) -> None:
        """Append rows to each array, and the names of as many samples.

        Raises InvalidError when rows differ from those before in type or shape.
        """
        table = np.frombuffer(b"".join(names), "<u8").reshape(-1, 4)
        for name, rows in {**arrays, NAMES: table}.items():
            kind = rows.dtype.newbyteorder("<").str, rows.shape[1:]
            if self._types.setdefault(name, kind) != kind:
                raise InvalidError(
                    f"{name} is {kind} here and {self._types[name]} before.",
                    "Give all samples one type and shape (pictures: --size).",
                )
            if name not in self._files:
                self._files[name] = (self._aside / name).open("wb", buffering=0)
            data = np.ascontiguousarray(rows, kind[0])
            self._files[name].write(data.data.cast("B") if data.size else b"")

    def close(
        self, counts: Mapping[str, int], notes: Mapping[str, Any] | None = None
    ) -> None:
        """Flush all to disk and give the part its name.

        ``counts`` says what was read and what was left out, and why; ``notes`` is for
        the recipe.
        """
        for file in self._files.values():
            os.fsync(file.fileno())
            file.close()
        about = {"arrays": self._types, "counts": dict(counts), "notes": notes or {}}
        files.write_whole(self._aside / ABOUT, json.dumps(about))
        if self._folder.exists():  # somebody else did the same task, with equal results
            self.drop()
            return
        self._aside.rename(self._folder)
        files.sync_folder(self._folder.parent)

    def drop(self) -> None:
        """Leave nothing behind."""
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._aside, ignore_errors=True)


class Part:
    """A finished part, its arrays mapped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        about = json.loads((folder / ABOUT).read_text())
        self._types: Mapping[str, tuple[str, list[int]]] = about["arrays"]
        self.counts: Mapping[str, int] = about["counts"]
        self.notes: Mapping[str, Any] = about["notes"]

    @property
    def arrays(self) -> Sequence[str]:
        """Names of the arrays; a part without samples has none."""
        return [name for name in self._types if name != NAMES]

    @property
    def types(self) -> Mapping[str, object]:
        """Type and row shape of each array."""
        return {name: self._types[name] for name in self.arrays}

    def array(self, name: str) -> Values:
        """Map an array: shape (n, …)."""
        kind, row_shape = self._types[name]
        path = self._folder / name
        if path.stat().st_size == 0:
            return np.empty((0, *row_shape), kind)
        flat: Values = np.memmap(path, dtype=kind, mode="r")
        return np.asarray(flat).reshape(-1, *row_shape)

    def names(self) -> Names:
        """Return the names of the samples."""
        if NAMES not in self._types:
            return names_from([])
        table = self.array(NAMES)
        return Names(table[:, :2], table[:, 2], table[:, 3])
