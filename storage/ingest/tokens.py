"""From text to tokens: the recipe of `hpcplat data ingest --text`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets import tokenizer as tokenizers
from hpcplat.datasets.manifest import Kind
from hpcplat.datasets.tokenizer import ByteTokenizer, FileTokenizer, Tokenizer, id_type
from storage.ingest.dealing import Dealt
from storage.ingest.documents import (
    PACKINGS,
    SUFFIXES,
    Document,
    can_be_cut,
    documents,
)
from storage.ingest.expression import Filter
from storage.ingest.options import IngestOptions, Splitting, TextOptions
from storage.ingest.parts import Part, PartWriter, name_of
from storage.ingest.recipe import Task
from storage.ingest.sources import check_unchanged, cut, listed, packed, stamped
from storage.publishing import Draft
from storage.writing import ArrayWriter

_BATCH_CHARACTERS = 2**20


def tokenizer_for(options: TextOptions) -> Tokenizer:
    """Return the tokenizer that the options name."""
    if options.tokenizer == tokenizers.BYTES:
        return ByteTokenizer()
    return FileTokenizer(Path(options.tokenizer), options.end_token)


def checked(options: TextOptions) -> TextOptions:
    """Return the options with the tokenizer's hash; refuse what cannot work."""
    tokenizer_for(options)
    if options.where:
        Filter(options.where)
    if options.tokenizer == tokenizers.BYTES:
        return options
    content = Path(options.tokenizer).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    return options.model_copy(update={"tokenizer_hash": found})


@dataclass(frozen=True, slots=True)
class TextRecipe:
    """Text files become a stream of tokens and the offsets of its documents."""

    options: TextOptions

    @property
    def kind(self) -> Kind:
        """The kind of dataset that it makes."""
        return "tokens"

    def tasks(self, sources: Sequence[str]) -> list[Task]:
        """Cut the sources into tasks: large files by lines, small ones together."""
        suffixes = [suffix + packing for suffix in SUFFIXES for packing in PACKINGS]
        wholes = [stamped(path) for path in listed(sources, suffixes)]
        return packed(
            piece
            for whole in wholes
            for piece in cut(whole, lines=can_be_cut(whole.path, self.options))
        )

    def make_part(self, folder: Path, task: Task, splitting: Splitting) -> None:
        """Read, clean and tokenize the documents of a task."""
        tokenizer = tokenizer_for(self.options)
        counts: Counter[str] = Counter()
        part = PartWriter(folder)
        try:
            for batch in _batches(self._kept(task, counts)):
                ids, lengths = tokenizer.encode([document.text for document in batch])
                names = [_name(document, splitting) for document in batch]
                part.append({"tokens": ids, "lengths": lengths}, names)
            part.close(counts)
        finally:
            part.drop()

    def _kept(self, task: Task, counts: Counter[str]) -> Iterator[Document]:
        where = Filter(self.options.where) if self.options.where else None
        for piece in task:
            check_unchanged(piece)
            for document in documents(piece, self.options):
                counts["documents read"] += 1
                counts["characters replaced"] += document.replaced
                reason = left_out(document, self.options, where)
                if reason:
                    counts[reason] += 1
                else:
                    yield document

    def write(
        self,
        draft: Draft,
        parts: Sequence[Part],
        dealt: Dealt,
        options: IngestOptions,
    ) -> Mapping[str, Any]:
        """Write tokens and document offsets of all splits."""
        tokenizer = tokenizer_for(self.options)
        dtype = id_type(tokenizer.vocabulary_size)
        for split in dealt.splits:
            tokens = draft.array(split, "tokens", dtype, (), options.compressor)
            offsets = draft.array(split, "documents", np.dtype(np.uint64))
            if not offsets.rows:
                offsets.append(np.zeros(1, np.uint64))
            for part, mask in zip(parts, dealt.masks(split), strict=True):
                if len(mask):
                    _append(part, mask, tokens, offsets)
            draft.set_samples(split, offsets.rows - 1)
        return self._attributes(draft, tokenizer)

    def _attributes(self, draft: Draft, tokenizer: Tokenizer) -> Mapping[str, Any]:
        attributes: dict[str, Any] = {
            "tokenizer": tokenizers.BYTES,
            "vocabulary_size": tokenizer.vocabulary_size,
            "end_of_document": tokenizer.end_of_document,
        }
        if isinstance(tokenizer, FileTokenizer):
            content = Path(self.options.tokenizer).read_bytes()
            draft.add_file(tokenizers.FILE_NAME, content)
            found = {"tokenizer": "file", "end_token": tokenizer.end_token}
            attributes |= found
        return attributes


def left_out(document: Document, options: TextOptions, where: Filter | None) -> str:
    """Return why a document is not kept, or an empty string."""
    length = len(document.text)
    if length < options.shortest:
        return "too short"
    if options.longest and length > options.longest:
        return "too long"
    if where is not None:
        names = {**document.fields, "text": document.text, "length": length}
        if not where.holds(names):
            return "filtered"
    return ""


def _name(document: Document, splitting: Splitting) -> bytes:
    return name_of(document.text.encode(), document.fields, splitting)


def _batches(found: Iterator[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in found:
        batch.append(document)
        size += len(document.text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _append(
    part: Part, mask: npt.NDArray[np.bool_], tokens: ArrayWriter, offsets: ArrayWriter
) -> None:
    lengths, ids = part.array("lengths"), part.array("tokens")
    start = tokens.rows
    tokens.append(ids if mask.all() else ids[np.repeat(mask, lengths)])
    offsets.append((start + np.cumsum(lengths[mask])).astype(np.uint64))
