"""From text to tokens: one task of a text ingest."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpcplat.datasets.tokenizer import (
    BYTES,
    ByteTokenizer,
    FileTokenizer,
    Tokenizer,
    id_type,
)
from storage.ingest.documents import Document, documents
from storage.ingest.options import TextOptions
from storage.ingest.parts import PartRows, Tokens, write_part
from storage.ingest.sources import Piece, check_unchanged

_BATCH_CHARACTERS = 2**20


def tokenizer_for(options: TextOptions) -> Tokenizer:
    """Return the tokenizer that the options name."""
    if options.tokenizer == BYTES:
        return ByteTokenizer()
    return FileTokenizer(Path(options.tokenizer), options.end_token)


def make_part(folder: Path, pieces: tuple[Piece, ...], options: TextOptions) -> None:
    """Read, clean and tokenize the documents of some pieces into a part."""
    tokenizer = tokenizer_for(options)
    counts: Counter[str] = Counter()
    parts: list[Tokens] = []
    lengths: list[Tokens] = []
    names: list[bytes] = []
    for batch in _batches(_kept(pieces, options, counts)):
        ids, sizes = tokenizer.encode([document.text for document in batch])
        parts.append(ids)
        lengths.append(sizes)
        names += [_names(document, options) for document in batch]
    table = np.frombuffer(b"".join(names), "<u8").reshape(len(names), 4)
    rows = PartRows(
        lengths=np.concatenate([np.empty(0, np.int64), *lengths]),
        hashes=table[:, :2],
        keys=table[:, 2],
        strata=table[:, 3],
        counts=counts,
    )
    empty = np.empty(0, id_type(tokenizer.vocabulary_size))
    write_part(folder, np.concatenate([empty, *parts]), rows)


def _kept(
    pieces: tuple[Piece, ...], options: TextOptions, counts: Counter[str]
) -> Iterator[Document]:
    for piece in pieces:
        check_unchanged(piece)
        for document in documents(piece, options):
            counts["read"] += 1
            counts["characters replaced"] += document.replaced
            reason = left_out(document, options)
            if reason:
                counts[reason] += 1
            else:
                yield document


def left_out(document: Document, options: TextOptions) -> str:
    """Return why a document is not kept, or an empty string."""
    if len(document.text) < options.shortest:
        return "too short"
    if options.longest and len(document.text) > options.longest:
        return "too long"
    return ""


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


def _names(document: Document, options: TextOptions) -> bytes:
    """Return 32 bytes: the text's hash (16), its key's (8) and its stratum's (8)."""
    text = _hash(document.text, 16)
    splitting = options.splitting
    key = str(document.fields.get(splitting.key)) if splitting.key else text.hex()
    stratum = str(document.fields.get(splitting.strata)) if splitting.strata else ""
    return text + _hash(f"{splitting.seed}/{key}", 8) + _hash(stratum, 8)


def _hash(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()
