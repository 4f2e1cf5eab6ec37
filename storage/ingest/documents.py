"""Documents of text sources, one after the other, with the fields beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcplat.errors import InvalidError
from storage.ingest.options import TextOptions
from storage.ingest.sources import Piece, is_url, needs, opened, without_secrets

SUFFIXES = (".txt", ".md", ".jsonl", ".ndjson", ".parquet")
PACKINGS = ("", ".gz", ".zst")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and what stands beside it in its record; ``replaced`` counts bad bytes."""

    text: str
    fields: Mapping[str, Any]
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where something was read, for messages; the line is counted only for them."""

    piece: Piece
    number: int

    def __str__(self) -> str:
        name = without_secrets(self.piece.path)
        if kind_of(self.piece.path) == "parquet":
            return f"{name}, row {self.number}"
        return f"{name}, line {lines_before(self.piece) + self.number}"


def kind_of(path: str) -> str:
    """Return what a source holds, by its name without .gz or .zst."""
    bare = path.removesuffix(".gz").removesuffix(".zst")
    if bare.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    return "parquet" if bare.endswith(".parquet") else "text"


def can_be_cut(path: str, options: TextOptions) -> bool:
    """Say whether a source can be read from the middle of its lines."""
    if is_url(path) or path.endswith((".gz", ".zst")):
        return False
    kind = kind_of(path)
    return kind == "jsonl" or (kind == "text" and options.per == "line")


def documents(piece: Piece, options: TextOptions) -> Iterator[Document]:
    """Yield the documents of a piece in order.

    Raises InvalidError with path and line for what cannot be read.
    """
    return _READERS[kind_of(piece.path)](piece, options)


def _of_text(piece: Piece, options: TextOptions) -> Iterator[Document]:
    name = without_secrets(piece.path)
    if options.per == "line":
        for number, line in lines(piece):
            place = _Place(piece, number)
            text, replaced = _decoded(line.rstrip(b"\r\n"), place, options)
            yield Document(text, {"path": name}, replaced)
        return
    with opened(piece.path) as file:
        raw = file.read()
    text, replaced = _decoded(raw, _Place(piece, 1), options)
    yield Document(text, {"path": name}, replaced)


def _of_jsonl(piece: Piece, options: TextOptions) -> Iterator[Document]:
    for number, line in lines(piece):
        if not line.strip():
            continue
        place = _Place(piece, number)
        text, replaced = _decoded(line, place, options)
        try:
            record = json.loads(text)
        except ValueError as error:
            raise InvalidError(
                f"{place} is not JSON ({error}).", "Mend or remove the line."
            ) from error
        yield _document(record, options.field, place, replaced)


def _of_parquet(piece: Piece, options: TextOptions) -> Iterator[Document]:
    name = without_secrets(piece.path)
    with opened(piece.path) as raw:
        table = parquet_file(name, raw)
        if options.field not in table.schema_arrow.names:
            raise InvalidError(
                f"{name} has no column {options.field!r}.",
                f"Name one with --field: {', '.join(table.schema_arrow.names)}.",
            )
        number = 0
        for batch in table.iter_batches():
            for record in batch.to_pylist():
                number += 1
                yield _document(record, options.field, _Place(piece, number), 0)


_READERS: Mapping[str, Callable[[Piece, TextOptions], Iterator[Document]]] = {
    "text": _of_text,
    "jsonl": _of_jsonl,
    "parquet": _of_parquet,
}


def parquet_file(name: str, raw: Any) -> Any:  # noqa: ANN401 (the library has no types)
    """Open a Parquet file; raise InvalidError when it is none."""
    try:
        return needs("pyarrow.parquet").ParquetFile(raw)
    except (ValueError, OSError) as error:
        raise InvalidError(
            f"{name} is not a whole Parquet file ({error}).", "Check the source."
        ) from error


def _document(record: Any, field: str, place: _Place, replaced: int) -> Document:  # noqa: ANN401
    text = record.get(field) if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise InvalidError(
            f"{place} has no text in field {field!r}.",
            "Name the text's field with --field.",
        )
    return Document(text, record, replaced)


def _decoded(raw: bytes, place: _Place, options: TextOptions) -> tuple[str, int]:
    """Return the text, and how many characters had to be replaced."""
    try:
        return raw.decode(), 0
    except UnicodeDecodeError as error:
        if options.broken == "replace":
            text = raw.decode(errors="replace")
            return text, text.count("\ufffd") - raw.count("\ufffd".encode())
        inside = raw.count(b"\n", 0, error.start)
        where = _Place(place.piece, place.number + inside)
        raise InvalidError(
            f"{where} is not UTF-8 (byte {error.start}: {error.reason}).",
            "Convert the source, or count replacements: --broken replace.",
        ) from error


def lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin inside the piece, numbered from 1."""
    whole = piece.start == 0 and piece.stop == piece.size
    with opened(piece.path) as file:
        position = 0
        if piece.start:
            # The line that begins before the piece belongs to the one before.
            file.seek(piece.start - 1)
            position = piece.start - 1 + len(file.readline())
        for number, line in enumerate(file, 1):
            if position >= piece.stop and not whole:
                return
            position += len(line)
            yield number, line


def lines_before(piece: Piece) -> int:
    """Count the lines of the source that begin before the piece."""
    if not piece.start:
        return 0
    with opened(piece.path) as file:
        head = file.read(piece.start)
    return head.count(b"\n") + (not head.endswith(b"\n"))
