"""From parts to a version: duplicates out, splits dealt, shards written in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.codecs import compressors
from hpcplat.datasets.tokenizer import id_type
from hpcplat.errors import InvalidError
from storage.ingest.options import Splitting
from storage.ingest.parts import Hashes, PartRows, Tokens, read_rows, read_tokens
from storage.ingest.splits import TRAIN, by_hash, stratified
from storage.publishing import Draft
from storage.writing import ArrayWriter

Mask = npt.NDArray[np.bool_]


class Dealt:
    """Which documents of all parts go where; those left out are number -1."""

    def __init__(self, rows: Sequence[PartRows], splitting: Splitting) -> None:
        keys = np.concatenate([one.keys for one in rows])
        strata = np.concatenate([one.strata for one in rows])
        fractions = splitting.fractions
        if splitting.strata:
            self.numbers = stratified(keys, strata, fractions)
        else:
            self.numbers = by_hash(keys, fractions)
        rest = sum(fractions.values()) < 1 - 1e-9
        self.names = [*fractions, *([TRAIN] if rest else [])]
        self._bounds = np.cumsum([0, *(len(one.lengths) for one in rows)])

    def leave_out(self, which: Mask) -> None:
        """Leave documents out of all splits."""
        self.numbers[which] = -1

    def mask(self, part: int, split: int) -> Mask:
        """Return which documents of a part belong to a split."""
        first, last = self._bounds[part : part + 2]
        return np.asarray(self.numbers[first:last] == split)


def duplicates(hashes: Hashes) -> Mask:
    """Return which texts occurred before, the first occurrence not counted.

    ``hashes`` has shape (n, 2); 128 bits make a chance collision out of the question.
    """
    whole = np.ascontiguousarray(hashes).view([("high", "<u8"), ("low", "<u8")])[:, 0]
    repeated = np.ones(len(whole), dtype=np.bool_)
    _, first = np.unique(whole, return_index=True)
    repeated[first] = False
    return repeated


def write_splits(
    draft: Draft,
    folders: Sequence[Path],
    rows: Sequence[PartRows],
    dealt: Dealt,
    vocabulary_size: int,
    compressor: str,
) -> None:
    """Write tokens and document offsets of every split, parts in order."""
    for number, name in enumerate(dealt.names):
        masks = [dealt.mask(part, number) for part in range(len(folders))]
        samples = sum(int(mask.sum()) for mask in masks)
        if not samples:
            raise InvalidError(
                f"Split {name} would be empty.", "Give it a larger fraction."
            )
        dtype = id_type(vocabulary_size)
        folder = draft.folder / name
        codecs = compressors(compressor, dtype.itemsize)
        tokens = ArrayWriter(folder / "tokens", dtype, compressors=codecs)
        offsets = ArrayWriter(folder / "documents", np.dtype(np.uint64))
        draft.add_array(name, "tokens", tokens)
        draft.add_array(name, "documents", offsets)
        draft.set_samples(name, samples)
        offsets.append(np.zeros(1, np.uint64))
        for part, mask in zip(range(len(folders)), masks, strict=True):
            start = tokens.rows
            lengths = rows[part].lengths
            tokens.append(_chosen(read_tokens(folders[part], dtype), lengths, mask))
            ends = start + np.cumsum(lengths[mask])
            offsets.append(ends.astype(np.uint64))


def _chosen(
    tokens: Tokens, lengths: npt.NDArray[np.int64], mask: Mask
) -> npt.NDArray[Any]:
    if mask.all():
        return tokens
    return np.asarray(tokens[np.repeat(mask, lengths)])


def summed(rows: Sequence[PartRows]) -> Mapping[str, int]:
    """Return the counts of all parts together."""
    total: Counter[str] = Counter()
    for one in rows:
        total.update(one.counts)
    return {name: count for name, count in total.items() if count}


def read_all(folders: Sequence[Path]) -> list[PartRows]:
    """Read the rows of all parts."""
    return [read_rows(folder) for folder in folders]
