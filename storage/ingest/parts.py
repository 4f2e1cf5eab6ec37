"""A part: what one task gave, in a folder that appears whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat import files
from storage.ingest.options import Splitting

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


def write_part(
    folder: Path,
    arrays: Mapping[str, Values],
    names: Names,
    counts: Mapping[str, int],
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a part; readers see all of it or nothing.

    ``counts`` says what was read and what was left out, and why; ``notes`` is for
    the recipe.
    """
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    whole = {"hashes": names.hashes, "keys": names.keys, "strata": names.strata}
    for name, values in {**arrays, **whole}.items():
        with (aside / f"{name}.npy").open("wb") as file:
            np.save(file, values, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
    about = {"counts": dict(counts), "notes": notes or {}}
    files.write_whole(aside / "about.json", json.dumps(about))
    if folder.exists():  # somebody else did the same task: the results are equal
        shutil.rmtree(aside)
        return
    aside.rename(folder)
    files.sync_folder(folder.parent)


def read_names(folder: Path) -> Names:
    """Read the names of a part's samples."""
    return Names(*(read_array(folder, name) for name in ("hashes", "keys", "strata")))


def read_array(folder: Path, name: str) -> Values:
    """Map an array of a part."""
    found: Values = np.load(folder / f"{name}.npy", mmap_mode="r")
    return found


def read_about(folder: Path) -> tuple[Mapping[str, int], Mapping[str, Any]]:
    """Return a part's counts and notes."""
    about = json.loads((folder / "about.json").read_text())
    return about["counts"], about["notes"]
