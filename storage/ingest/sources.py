"""Where samples come from: files on disk or behind a URL, and the pieces to read."""

from __future__ import annotations

import gzip
import importlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from hpcplat.errors import InvalidError, NotFoundError, UnavailableError

PIECE_BYTES = 32 * 2**20


class Piece(NamedTuple):
    """A stretch of one source: bytes ``start`` … ``stop``, or row groups of a table.

    ``size`` and ``stamp`` (modification time, or an entity tag) are those of the
    whole source when the work was planned.
    """

    path: str
    start: int
    stop: int
    size: int
    stamp: str


def is_url(path: str) -> bool:
    """Say whether a source lies behind a URL."""
    return "://" in path


def needs(module: str, extra: str = "ingest") -> Any:  # noqa: ANN401 (a module)
    """Import a library of an extra; raise UnavailableError that names the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"The library {module} is not installed.",
            f"Install it: pip install 'hpcplat[{extra}]'.",
        ) from error


def listed(sources: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    """Return all files of the sources in order: folders are walked, names sorted.

    In folders only files with one of the suffixes count. Raises NotFoundError for a
    source that is not there, InvalidError when nothing is left.
    """
    found: list[str] = []
    for source in sources:
        found += _urls(source) if is_url(source) else _paths(source, suffixes)
    if not found:
        raise InvalidError(
            f"No file with {', '.join(suffixes)} in {', '.join(sources)}.",
            "Name files or folders that hold some.",
        )
    return found


def _paths(source: str, suffixes: Sequence[str]) -> list[str]:
    path = Path(source)
    if path.is_dir():
        inside = (
            file for file in path.rglob("*") if file.name.endswith(tuple(suffixes))
        )
        return sorted(str(file) for file in inside if file.is_file())
    if not path.is_file():
        raise NotFoundError(f"There is no source {source}.", "Check the path.")
    return [source]


def _urls(source: str) -> list[str]:
    fsspec = needs("fsspec")
    system, path = fsspec.core.url_to_fs(source)
    if "*" not in path:
        return [source]
    return [system.unstrip_protocol(name) for name in sorted(system.glob(path))]


def stamped(path: str) -> Piece:
    """Return a piece that is the whole of a source."""
    if is_url(path):
        return _stamped_url(path)
    try:
        status = Path(path).stat()
    except FileNotFoundError as error:
        raise _gone(path) from error
    return Piece(path, 0, status.st_size, status.st_size, str(status.st_mtime_ns))


def _stamped_url(path: str) -> Piece:
    fsspec = needs("fsspec")
    system, name = fsspec.core.url_to_fs(path)
    try:
        about = system.info(name)
    except FileNotFoundError as error:
        raise _gone(path) from error
    size = int(about.get("size") or 0)
    stamp = about.get("ETag") or about.get("LastModified") or about.get("created") or ""
    return Piece(path, 0, size, size, str(stamp))


def check_unchanged(piece: Piece) -> None:
    """Refuse a source that is no longer what was planned with."""
    now = stamped(piece.path)
    if (now.size, now.stamp) != (piece.size, piece.stamp):
        raise UnavailableError(
            f"{piece.path} has changed since the ingest began.",
            "Start the ingest again when nobody writes the sources.",
        )


def opened(path: str) -> IO[bytes]:
    """Open a source for reading, decompressed by its suffix (.gz, .zst)."""
    try:
        raw = _open_url(path) if is_url(path) else _open_file(path)
    except FileNotFoundError as error:
        raise _gone(path) from error
    if path.endswith(".gz"):
        return gzip.open(raw)  # type: ignore[return-value]
    if path.endswith(".zst"):
        stream = (
            needs("zstandard")
            .ZstdDecompressor()
            .stream_reader(raw, read_across_frames=True)
        )
        return io.BufferedReader(stream)
    return raw


def _open_file(path: str) -> IO[bytes]:
    return Path(path).open("rb")


def _open_url(path: str) -> IO[bytes]:
    file: IO[bytes] = needs("fsspec").open(path, "rb").open()
    return file


def _gone(path: str) -> UnavailableError:
    return UnavailableError(
        f"The source {path} is gone.",
        "Put it back and run the command again: it goes on where it stopped.",
    )


def cut(whole: Piece, can_be_cut: bool) -> Iterable[Piece]:
    """Cut a large source into pieces that are read on their own."""
    if not can_be_cut or whole.size <= PIECE_BYTES:
        return [whole]
    starts = range(0, whole.size, PIECE_BYTES)
    stops = (min(start + PIECE_BYTES, whole.size) for start in starts)
    return [whole._replace(start=a, stop=b) for a, b in zip(starts, stops, strict=True)]


def packed(pieces: Iterable[Piece]) -> list[tuple[Piece, ...]]:
    """Group pieces into tasks: small sources together, up to the size of a piece."""
    tasks: list[tuple[Piece, ...]] = []
    group: list[Piece] = []
    for piece in pieces:
        length = sum(one.stop - one.start for one in group)
        if group and length + piece.stop - piece.start > PIECE_BYTES:
            tasks.append(tuple(group))
            group = []
        group.append(piece)
    return [*tasks, tuple(group)] if group else tasks
