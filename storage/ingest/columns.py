"""From rows to columns: the recipe of `--table`, `--numpy` and `--sql`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.manifest import Kind
from hpcplat.datasets.mixing import GOLDEN, mixed
from hpcplat.errors import InvalidError
from storage.ingest.categories import Coder, joined, translated
from storage.ingest.dealing import Dealt
from storage.ingest.expression import Filter
from storage.ingest.options import ColumnOptions, IngestOptions, Splitting
from storage.ingest.parts import Part, PartWriter, Values, short_hash
from storage.ingest.recipe import Task
from storage.ingest.sources import Piece, check_unchanged, listed, stamped
from storage.ingest.tables import SUFFIXES, Batch, batches, is_database
from storage.publishing import Draft


@dataclass(frozen=True, slots=True)
class ColumnRecipe:
    """Rows become arrays of one length; words become numbers with a list of words."""

    options: ColumnOptions

    @property
    def kind(self) -> Kind:
        """The kind of dataset that it makes."""
        return "columns"

    def tasks(self, sources: Sequence[str]) -> list[Task]:
        """Cut the sources into tasks: a file or a query each."""
        databases = [source for source in sources if is_database(source)]
        others = [source for source in sources if not is_database(source)]
        found: list[Task] = [(Piece(source, 0, 0, 0, ""),) for source in databases]
        if others:
            found += [(stamped(path),) for path in listed(others, SUFFIXES)]
        return found

    def make_part(self, folder: Path, task: Task, splitting: Splitting) -> None:
        """Read the rows of a task."""
        counts: Counter[str] = Counter()
        coders: dict[str, Coder] = {}
        part = PartWriter(folder)
        try:
            for batch in self._kept(task, counts):
                arrays = {
                    name: self._coded(name, values, coders)
                    for name, values in batch.items()
                }
                part.append(arrays, named(batch, splitting))
            words = {name: coder.words for name, coder in coders.items()}
            part.close(counts, {"words": words})
        finally:
            part.drop()

    def _kept(self, task: Task, counts: Counter[str]) -> Iterator[Batch]:
        where = Filter(self.options.where) if self.options.where else None
        for piece in task:
            if not is_database(piece.path):
                check_unchanged(piece)
            for batch in batches(piece, self.options):
                size = len(next(iter(batch.values())))
                counts["rows read"] += size
                kept = batch if where is None else filtered(batch, where)
                chosen = self._chosen(kept)
                left = len(next(iter(chosen.values())))
                counts["filtered"] += size - left
                if left:
                    yield chosen

    def _chosen(self, batch: Batch) -> Batch:
        missing = [name for name in self.options.columns if name not in batch]
        if missing:
            raise InvalidError(
                f"There is no column {', '.join(missing)}.",
                f"There are: {', '.join(batch)}.",
            )
        return {name: batch[name] for name in self.options.columns or batch}

    def _coded(self, name: str, values: Values, coders: dict[str, Coder]) -> Values:
        if values.dtype.kind not in "OUS":
            return values
        return coders.setdefault(name, Coder()).codes([str(value) for value in values])

    def write(
        self, draft: Draft, parts: Sequence[Part], dealt: Dealt, options: IngestOptions
    ) -> Mapping[str, Any]:
        """Write all columns of all splits."""
        full = [part for part in parts if part.arrays]
        columns = _agreed(full)
        words = _joined_words(draft, full)
        for split in dealt.splits:
            masks = [
                m for m, p in zip(dealt.masks(split), parts, strict=True) if p.arrays
            ]
            for name in columns:
                first = full[0].array(name)
                writer = draft.array(
                    split, name, first.dtype, first.shape[1:], options.compressor
                )
                for part, mask in zip(full, masks, strict=True):
                    writer.append(_rows(part, name, mask, words))
                draft.set_samples(split, writer.rows)
        return {"categories": words}


def _agreed(parts: Sequence[Part]) -> Sequence[str]:
    for part in parts:
        if part.types != parts[0].types:
            raise InvalidError(
                f"One source has the columns {part.types}, another {parts[0].types}.",
                "Give all one type and shape, or choose columns with --column.",
            )
    return parts[0].arrays


def _joined_words(draft: Draft, parts: Sequence[Part]) -> dict[str, list[str]]:
    old: Mapping[str, list[str]] = {}
    if draft.parent is not None:
        old = draft.parent.content.attributes["categories"]
    names = sorted({name for part in parts for name in part.notes["words"]})
    lists = {name: [p.notes["words"].get(name, []) for p in parts] for name in names}
    return {name: joined(old.get(name, []), lists[name]) for name in names}


def _rows(
    part: Part, name: str, mask: npt.NDArray[np.bool_], words: Mapping[str, list[str]]
) -> Values:
    values = part.array(name)
    rows = values if mask.all() else values[mask]
    if name in words:
        return translated(np.asarray(rows), part.notes["words"][name], words[name])
    return rows


def filtered(batch: Batch, where: Filter) -> Batch:
    """Return the rows of which the filter holds."""
    lists = [values.tolist() for values in batch.values()]
    rows = (dict(zip(batch, row, strict=True)) for row in zip(*lists, strict=True))
    mask = np.array([where.holds(row) for row in rows], dtype=np.bool_)
    return {name: values[mask] for name, values in batch.items()}


def named(batch: Batch, splitting: Splitting) -> list[bytes]:
    """Return the names of rows (see ``parts.name_of``), hashed all at once."""
    size = len(next(iter(batch.values())))
    words = [_as_words(values) for values in batch.values()]
    table = np.empty((size, 4), np.uint64)
    table[:, 0] = _hashed(words, size, 1)
    table[:, 1] = _hashed(words, size, 2)
    key = [_as_words(_field(batch, splitting.key))] if splitting.key else words
    table[:, 2] = _hashed(key, size, 3 + splitting.seed)
    strata = [_as_words(_field(batch, splitting.strata))] if splitting.strata else []
    table[:, 3] = _hashed(strata, size, 0)
    return [table.astype("<u8").tobytes()] if size else []


def _field(batch: Batch, name: str) -> Values:
    if name not in batch:
        raise InvalidError(
            f"There is no column {name} to split by.", f"There are: {', '.join(batch)}."
        )
    return batch[name]


def _as_words(values: Values) -> npt.NDArray[np.uint64]:
    """Return the bytes of each row as words of 8: shape (n, words)."""
    if values.dtype.kind in "OUS":
        hashes = [short_hash(str(value).encode(), 0) for value in values]
        return np.frombuffer(b"".join(hashes), "<u8").reshape(len(values), 1)
    raw = np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)
    padded = np.zeros((len(raw), -(-raw.shape[1] // 8) * 8), np.uint8)
    padded[:, : raw.shape[1]] = raw
    return padded.view("<u8")


def _hashed(
    columns: Sequence[npt.NDArray[np.uint64]], size: int, seed: int
) -> npt.NDArray[np.uint64]:
    state = np.full(size, seed % 2**64, np.uint64)
    for words in columns:
        for column in words.T:
            state = mixed((state ^ column) * GOLDEN + GOLDEN)
    return mixed(state)
