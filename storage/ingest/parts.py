"""A part: what one task gave, in a folder that appears whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat import files

Hashes = npt.NDArray[np.uint64]
Tokens = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class PartRows:
    """What is known of each document of a part, in order.

    ``hashes`` (n, 2) name the text, ``keys`` decide the split, ``strata`` the
    stratum; ``counts`` says what was kept and what was left out, and why.
    """

    lengths: npt.NDArray[np.int64]
    hashes: Hashes
    keys: Hashes
    strata: Hashes
    counts: Mapping[str, int]


def part_folder(work: Path, number: int) -> Path:
    """Return where the part of a task lies."""
    return work / "parts" / f"{number:07}"


def write_part(folder: Path, tokens: npt.NDArray[Any], rows: PartRows) -> None:
    """Write a part; readers see all of it or nothing."""
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    with (aside / "tokens").open("wb") as file:
        file.write(np.ascontiguousarray(tokens).data)
        file.flush()
        os.fsync(file.fileno())
    with (aside / "rows.npz").open("wb") as file:
        np.savez(
            file,
            lengths=rows.lengths,
            hashes=rows.hashes,
            keys=rows.keys,
            strata=rows.strata,
        )
        file.flush()
        os.fsync(file.fileno())
    files.write_whole(aside / "counts.json", json.dumps(dict(rows.counts)))
    if folder.exists():  # two workers had the same task: the results are equal
        shutil.rmtree(aside)
        return
    aside.rename(folder)
    files.sync_folder(folder.parent)


def read_rows(folder: Path) -> PartRows:
    """Read a part's rows, without its tokens."""
    with np.load(folder / "rows.npz") as found:
        arrays = {name: found[name] for name in ("lengths", "hashes", "keys", "strata")}
    counts = json.loads((folder / "counts.json").read_text())
    return PartRows(**arrays, counts=counts)


def read_tokens(folder: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Map a part's tokens."""
    path = folder / "tokens"
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r")
