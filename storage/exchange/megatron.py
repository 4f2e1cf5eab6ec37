"""Megatron's indexed dataset: ``prefix.bin`` with tokens, ``prefix.idx`` beside it.

Layout of the index, little-endian: the magic, version 1 (uint64), type code (uint8),
number of sequences and of document borders (uint64 each), then the sequences' lengths
(int32), their byte offsets (int64), and the borders of documents (int64).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.version import Split
from hpcplat.errors import InvalidError, NotFoundError

Tokens = npt.NDArray[Any]

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_TYPES = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    8: np.uint16,
}
_BATCH_TOKENS = 2**22


@dataclass(frozen=True, slots=True)
class Indexed:
    """An opened indexed dataset: tokens in a row, and where documents end."""

    tokens: Tokens
    ends: npt.NDArray[np.int64]


def read(prefix: Path) -> Indexed:
    """Map ``prefix.idx`` and ``prefix.bin``.

    Raises NotFoundError when one is missing, InvalidError when they do not fit.
    """
    index, tokens = (Path(f"{prefix}.{end}") for end in ("idx", "bin"))
    for path in (index, tokens):
        if not path.is_file():
            raise NotFoundError(
                f"There is no {path}.", "Give the path without .idx and .bin."
            )
    try:
        return _parsed(index.read_bytes(), tokens)
    except (struct.error, ValueError, IndexError, KeyError) as error:
        raise InvalidError(
            f"{index} is no index of an indexed dataset ({error}).",
            "Give the files that Megatron's preprocess_data wrote.",
        ) from error


def _parsed(index: bytes, path: Path) -> Indexed:
    magic, version, code, sequences, borders = _HEADER.unpack_from(index)
    if magic != _MAGIC or version != 1:
        raise ValueError("wrong magic or version")
    lengths = np.frombuffer(index, "<i4", sequences, _HEADER.size)
    place = _HEADER.size + 4 * sequences
    pointers = np.frombuffer(index, "<i8", sequences, place)
    documents = np.frombuffer(index, "<i8", borders, place + 8 * sequences)
    dtype = np.dtype(_TYPES[code])
    tokens: Tokens = (
        np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)
    )
    ends = np.cumsum(lengths, dtype=np.int64)
    if not np.array_equal(pointers, (ends - lengths) * dtype.itemsize):
        raise ValueError("its sequences do not follow each other")
    if (ends[-1] if len(ends) else 0) != len(tokens):
        raise ValueError(f"it speaks of {ends[-1]} tokens, the .bin has {len(tokens)}")
    at = np.concatenate([np.zeros(1, np.int64), ends])
    return Indexed(tokens, at[documents[1:]])


def documents(found: Indexed) -> Iterator[tuple[Tokens, npt.NDArray[np.int64]]]:
    """Yield runs of whole documents: their tokens, and the documents' lengths."""
    starts = np.concatenate([np.zeros(1, np.int64), found.ends])
    first = 0
    while first < len(found.ends):
        limit = starts[first] + _BATCH_TOKENS
        last = max(first + 1, int(np.searchsorted(found.ends, limit, side="right")))
        last = min(last, len(found.ends))
        ids = found.tokens[starts[first] : starts[last]]
        if ids.size and ids.dtype.kind == "i" and int(ids.min()) < 0:
            raise InvalidError("A token id is negative.", "Check the dataset.")
        yield ids, np.diff(starts[first : last + 1])
        first = last


def write(split: Split, prefix: Path) -> None:
    """Write a token split as ``prefix.bin`` and ``prefix.idx``."""
    tokens = split["tokens"]
    offsets = split["documents"].all_rows().astype(np.int64)
    dtype = np.dtype(np.uint16 if tokens.dtype.itemsize == 2 else np.int32)
    with Path(f"{prefix}.bin").open("wb") as file:
        for start in range(0, len(tokens), _BATCH_TOKENS):
            part = tokens.slice(start, min(start + _BATCH_TOKENS, len(tokens)))
            file.write(np.ascontiguousarray(part, dtype).data)
    code = {np.dtype(kind): number for number, kind in _TYPES.items()}[dtype]
    count = len(offsets) - 1
    with Path(f"{prefix}.idx").open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, 1, code, count, count + 1))
        file.write(np.diff(offsets).astype("<i4").tobytes())
        file.write((offsets[:-1] * dtype.itemsize).astype("<i8").tobytes())
        file.write(np.arange(count + 1, dtype="<i8").tobytes())
