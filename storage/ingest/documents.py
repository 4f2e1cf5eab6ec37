"""Documents of text sources, one after the other, with the fields beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from hpcplat.errors import InvalidError
from storage.ingest.options import TextOptions
from storage.ingest.sources import Piece, needs, opened

SUFFIXES = (".txt", ".md", ".jsonl", ".ndjson", ".parquet")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and what stands beside it in its record; ``replaced`` counts bad bytes."""

    text: str
    fields: Mapping[str, Any]
    replaced: int = 0


def kind_of(path: str) -> str:
    """Return what a source holds, by its name without .gz or .zst."""
    bare = path.removesuffix(".gz").removesuffix(".zst")
    if bare.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    return "parquet" if bare.endswith(".parquet") else "text"


def can_be_cut(path: str, options: TextOptions) -> bool:
    """Say whether a source can be read from the middle of its lines."""
    plain = not path.endswith((".gz", ".zst")) and "://" not in path
    lines = kind_of(path) == "jsonl" or (
        kind_of(path) == "text" and options.per == "line"
    )
    return plain and lines


def documents(piece: Piece, options: TextOptions) -> Iterator[Document]:
    """Yield the documents of a piece in order.

    Raises InvalidError with path and line for what cannot be read.
    """
    return _READERS[kind_of(piece.path)](piece, options)


def _of_text(piece: Piece, options: TextOptions) -> Iterator[Document]:
    if options.per == "line":
        for number, line in _lines(piece):
            stripped = line.rstrip(b"\r\n")
            yield _decoded(stripped, {}, _place(piece, number), options)
        return
    with opened(piece.path) as file:
        yield _decoded(file.read(), {"path": piece.path}, piece.path, options)


def _of_jsonl(piece: Piece, options: TextOptions) -> Iterator[Document]:
    for number, line in _lines(piece):
        if not line.strip():
            continue
        place = _place(piece, number)
        whole = _decoded(line, {}, place, options)
        try:
            record = json.loads(whole.text)
            text = record[options.field]
        except ValueError as error:
            raise InvalidError(
                f"{place} is not JSON ({error}).", "Mend or remove the line."
            ) from error
        except (KeyError, TypeError) as error:
            raise InvalidError(
                f"{place} has no field {options.field!r}.",
                "Name the text's field with --field.",
            ) from error
        yield _document(text, record, place, whole.replaced)


def _of_parquet(piece: Piece, options: TextOptions) -> Iterator[Document]:
    parquet = needs("pyarrow.parquet")
    with opened(piece.path) as raw:
        try:
            table = parquet.ParquetFile(raw)
            batches = table.iter_batches()
            names = table.schema_arrow.names
        except (ValueError, OSError) as error:
            raise InvalidError(
                f"{piece.path} is not a Parquet file ({error}).", "Check the source."
            ) from error
        if options.field not in names:
            raise InvalidError(
                f"{piece.path} has no column {options.field!r}.",
                f"It has: {', '.join(names)}. Name one with --field.",
            )
        row = 0
        for batch in batches:
            for record in batch.to_pylist():
                row += 1
                place = f"{piece.path}, row {row}"
                yield _document(record[options.field], record, place, 0)


_READERS: Mapping[str, Callable[[Piece, TextOptions], Iterator[Document]]] = {
    "text": _of_text,
    "jsonl": _of_jsonl,
    "parquet": _of_parquet,
}


def _document(
    text: object, fields: Mapping[str, Any], place: str, replaced: int
) -> Document:
    if not isinstance(text, str):
        raise InvalidError(
            f"{place}: the text is {type(text).__name__}, not a string.",
            "Name the text's field with --field.",
        )
    return Document(text, fields, replaced)


def _decoded(
    raw: bytes, fields: Mapping[str, Any], place: str, options: TextOptions
) -> Document:
    try:
        return Document(raw.decode(), fields)
    except UnicodeDecodeError as error:
        if options.broken_text == "replace":
            text = raw.decode(errors="replace")
            bad = text.count("\ufffd") - raw.count("\ufffd".encode())
            return Document(text, fields, bad)
        line = raw.count(b"\n", 0, error.start) + 1
        where = place if ", " in place else f"{place}, line {line}"
        raise InvalidError(
            f"{where} is not UTF-8 (byte {error.start}: {error.reason}).",
            "Convert the source, or count replacements: --broken-text replace.",
        ) from error


def _place(piece: Piece, number: int) -> str:
    if piece.start == 0:
        return f"{piece.path}, line {number}"
    return f"{piece.path}, line {number} after byte {piece.start}"


def _lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin inside the piece, with their numbers from 1."""
    with opened(piece.path) as file:
        position = _seek_line(file, piece.start)
        cut = piece.stop < piece.size or piece.start > 0
        for number, line in enumerate(file, 1):
            if cut and position >= piece.stop:
                return
            position += len(line)
            yield number, line


def _seek_line(file: IO[bytes], start: int) -> int:
    """Go to the first line that begins at ``start`` or after; return where it is."""
    if start == 0:
        return 0
    file.seek(start - 1)
    return start - 1 + len(file.readline())
