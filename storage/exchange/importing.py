"""Versions from other formats: one split, in one pass, published whole."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.manifest import Kind, Manifest
from hpcplat.datasets.tokenizer import BYTES, FILE_NAME, FileTokenizer, id_type
from hpcplat.errors import InvalidError
from storage.exchange import mds, megatron
from storage.ingest.categories import Coder
from storage.ingest.options import ImageOptions
from storage.ingest.pictures import BrokenPictureError, decoded
from storage.ingest.run import Target
from storage.ingest.sources import needs
from storage.publishing import Draft, changing
from storage.writing import disk_of

Values = npt.NDArray[Any]

_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an import makes: the split's name, and for tokens their tokenizer.

    ``vocabulary`` 0: the largest id and one. ``column`` names what holds the tokens.
    """

    split: str = "train"
    tokenizer: str = ""
    vocabulary: int = 0
    column: str = ""


def import_megatron(prefix: Path, wanted: Wanted, target: Target) -> Manifest:
    """Import an indexed dataset: a document is a document."""
    found = megatron.read(prefix)
    largest = int(found.tokens.max()) if len(found.tokens) else 0
    return _import_tokens(megatron.documents(found), largest, prefix, wanted, target)


def import_mds(folder: Path, wanted: Wanted, target: Target) -> Manifest:
    """Import MDS: tokens if a column is named for them, else images or columns."""
    if wanted.column:
        largest = max(
            (int(ids.max(initial=0)) for ids in _ids(folder, wanted)), default=0
        )
        runs = ((ids, np.array([len(ids)])) for ids in _ids(folder, wanted))
        return _import_tokens(runs, largest, folder, wanted, target)
    first = next(mds.read(folder), None)
    if first is None:
        raise InvalidError(f"{folder} holds no sample.", "Check it.")
    if any(isinstance(value, bytes) for value in first.values()):
        return _import_images(folder, wanted, target)
    batches = _stacked(mds.read(folder))
    return _import_columns(batches, folder, wanted, target)


def import_zarr(folder: Path, wanted: Wanted, target: Target) -> Manifest:
    """Import the arrays of a Zarr group (any layout), or one array, as columns."""
    zarr = needs("zarr")
    try:
        found = zarr.open(folder, mode="r")
    except (ValueError, OSError) as error:
        raise InvalidError(f"{folder} is no Zarr ({error}).", "Check it.") from error
    arrays = (
        dict(found.arrays()) if isinstance(found, zarr.Group) else {"values": found}
    )
    lengths = {array.shape[0] if array.shape else 0 for array in arrays.values()}
    if len(lengths) != 1:
        raise InvalidError(
            f"The arrays of {folder} differ in length.", "Give one of them alone."
        )

    def batches() -> Iterator[Mapping[str, Values]]:
        rows = max(array.chunks[0] for array in arrays.values())
        for start in range(0, min(lengths), rows):
            yield {
                name: np.asarray(a[start : start + rows]) for name, a in arrays.items()
            }

    return _import_columns(batches(), folder, wanted, target)


def _ids(folder: Path, wanted: Wanted) -> Iterator[Values]:
    for sample in mds.read(folder):
        ids = sample.get(wanted.column)
        if (
            not isinstance(ids, np.ndarray)
            or ids.ndim != 1
            or ids.dtype.kind not in "iu"
        ):
            raise InvalidError(
                f"{folder} has no whole numbers in column {wanted.column!r}.",
                f"Its columns: {', '.join(sample)}.",
            )
        yield ids


def _import_tokens(
    runs: Iterator[tuple[Values, npt.NDArray[np.int64]]],
    largest: int,
    source: Path,
    wanted: Wanted,
    target: Target,
) -> Manifest:
    attributes, content = _tokenizer(wanted, largest)
    if largest >= attributes["vocabulary_size"]:
        raise InvalidError(
            f"Token {largest} is not in a vocabulary of {attributes['vocabulary_size']}.",
            "Name the tokenizer that the tokens were made with.",
        )
    with _drafting(target, "tokens") as draft:
        dtype = id_type(attributes["vocabulary_size"])
        tokens = draft.array(wanted.split, "tokens", dtype)
        offsets = draft.array(wanted.split, "documents", np.dtype(np.uint64))
        offsets.append(np.zeros(1, np.uint64))
        for ids, lengths in runs:
            start = tokens.rows
            tokens.append(ids.astype(dtype))
            offsets.append((start + np.cumsum(lengths)).astype(np.uint64))
        draft.set_samples(wanted.split, offsets.rows - 1)
        if content:
            draft.add_file(FILE_NAME, content)
        return _published(draft, attributes, source, target)


def _tokenizer(wanted: Wanted, largest: int) -> tuple[dict[str, Any], bytes]:
    if wanted.tokenizer == BYTES:
        return {"tokenizer": BYTES, "vocabulary_size": 257, "end_of_document": 256}, b""
    if not wanted.tokenizer:
        size = wanted.vocabulary or largest + 1
        return {"tokenizer": "", "vocabulary_size": size, "end_of_document": None}, b""
    path = Path(wanted.tokenizer)
    known = FileTokenizer(path)
    about = {
        "tokenizer": "file",
        "end_token": known.end_token,
        "vocabulary_size": known.vocabulary_size,
        "end_of_document": known.end_of_document,
    }
    return about, path.read_bytes()


def _import_images(folder: Path, wanted: Wanted, target: Target) -> Manifest:
    coder = Coder()
    with _drafting(target, "images") as draft:
        labels = draft.array(wanted.split, "labels", np.dtype(np.int64))
        images = None
        for sample in mds.read(folder):
            pixels, label = _picture(sample, folder)
            if images is None:
                images = draft.array(
                    wanted.split, "images", np.dtype(np.uint8), pixels.shape
                )
            images.append(pixels[None])
            labels.append(coder.codes([label]))
        draft.set_samples(wanted.split, labels.rows)
        return _published(draft, {"class_names": coder.words}, folder, target)


def _picture(sample: mds.Sample, folder: Path) -> tuple[Values, str]:
    content = next(value for value in sample.values() if isinstance(value, bytes))
    others = [value for value in sample.values() if not isinstance(value, bytes)]
    try:
        pixels = decoded(content, ImageOptions())
    except BrokenPictureError as error:
        raise InvalidError(
            f"{folder} holds a picture that is not whole ({error}).", "Mend it."
        ) from error
    return pixels, str(others[0]) if others else ""


def _stacked(samples: Iterator[mds.Sample]) -> Iterator[Mapping[str, Values]]:
    while group := list(islice(samples, _AT_ONCE)):
        yield {name: _column([sample[name] for sample in group]) for name in group[0]}


def _column(values: Sequence[Any]) -> Values:
    try:
        return np.array(values, dtype=object if isinstance(values[0], str) else None)
    except ValueError as error:
        raise InvalidError(
            "The samples' arrays differ in shape.", "Name the tokens' column: --column."
        ) from error


def _import_columns(
    batches: Iterator[Mapping[str, Values]],
    source: Path,
    wanted: Wanted,
    target: Target,
) -> Manifest:
    coders: dict[str, Coder] = {}
    rows = 0
    with _drafting(target, "columns") as draft:
        writers: dict[str, Any] = {}
        for batch in batches:
            for name, given in batch.items():
                values = given
                if values.dtype.kind in "OUS":
                    words = [str(value) for value in values]
                    values = coders.setdefault(name, Coder()).codes(words)
                if name not in writers:
                    writers[name] = draft.array(
                        wanted.split, name, values.dtype, values.shape[1:]
                    )
                writers[name].append(values)
            rows += len(values)
        draft.set_samples(wanted.split, rows)
        words_of = {name: coder.words for name, coder in coders.items()}
        return _published(draft, {"categories": words_of}, source, target)


@contextmanager
def _drafting(target: Target, kind: Kind) -> Iterator[Draft]:
    with (
        changing(target.root, target.name) as paths,
        disk_of(target.root),
        Draft(paths, "import", kind) as draft,
    ):
        yield draft


def _published(
    draft: Draft, attributes: Mapping[str, Any], source: Path, target: Target
) -> Manifest:
    provenance = {
        "sources": [{"path": str(source)}],
        "counts": {},
        "hpcplat": importlib.metadata.version("hpcplat"),
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return draft.publish(attributes, provenance, tags=target.tags)
