"""Where samples come from: files on disk or behind a URL, and the pieces to read."""

from __future__ import annotations

import gzip
import importlib
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from hpcplat.errors import InvalidError, NotFoundError, UnavailableError
from storage.ingest.zstd_file import ZstdFile

PIECE_BYTES = 32 * 2**20
PIECES = 1000


class Piece(NamedTuple):
    """A stretch of one source: bytes ``start`` … ``stop``, or the whole of it.

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


def without_secrets(path: str) -> str:
    """Return a source as it may be written down: no password, no signed query."""
    if not is_url(path):
        return path
    parts = urlsplit(path)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


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
        ends = tuple(suffixes)
        inside = (p for p in path.rglob("*") if p.name.lower().endswith(ends))
        return sorted(str(file) for file in inside if file.is_file())
    if not path.is_file():
        raise NotFoundError(f"There is no source {source}.", "Check the path.")
    return [source]


def _urls(source: str) -> list[str]:
    with reaching(source):
        system, path = needs("fsspec").core.url_to_fs(source)
        if "*" not in path:
            return [source]
        names = sorted(str(name) for name in system.glob(path))
        return [str(system.unstrip_protocol(name)) for name in names]


def stamped(path: str) -> Piece:
    """Return a piece that is the whole of a source."""
    with reaching(path):
        if is_url(path):
            return _stamped_url(path)
        status = Path(path).stat()
        return Piece(path, 0, status.st_size, status.st_size, str(status.st_mtime_ns))


def _stamped_url(path: str) -> Piece:
    system, name = needs("fsspec").core.url_to_fs(path)
    about = system.info(name)
    size = int(about.get("size") or 0)
    stamp = about.get("ETag") or about.get("LastModified") or about.get("created") or ""
    return Piece(path, 0, size, size, str(stamp))


def check_unchanged(piece: Piece) -> None:
    """Refuse a source that is no longer what was planned with."""
    now = stamped(piece.path)
    if (now.size, now.stamp) != (piece.size, piece.stamp):
        raise UnavailableError(
            f"{without_secrets(piece.path)} has changed since the ingest began.",
            "Start the ingest again when nobody writes the sources.",
        )


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a source for reading, decompressed by its suffix (.gz, .zst)."""
    with reaching(path), _raw(path) as raw:
        if path.endswith((".gz", ".tgz")):
            yield gzip.GzipFile(fileobj=raw)  # type: ignore[misc]
        elif path.endswith(".zst"):
            reader = needs("zstandard").ZstdDecompressor()
            yield io.BufferedReader(ZstdFile(raw, reader))
        else:
            yield raw


def _raw(path: str) -> IO[bytes]:
    if is_url(path):
        file: IO[bytes] = needs("fsspec").open(path, "rb").open()
        return file
    return Path(path).open("rb")


@contextmanager
def reaching(path: str) -> Iterator[None]:
    """Turn what can go wrong with a source into an error that names it."""
    name = without_secrets(path)
    try:
        yield
    except FileNotFoundError as error:
        raise UnavailableError(
            f"The source {name} is gone.",
            "Put it back and run the command again: it goes on where it stopped.",
        ) from error
    except ImportError as error:  # fsspec has the system's library loaded when needed
        raise UnavailableError(
            f"The source {name} cannot be read ({error}).", "Install that library."
        ) from error
    except (EOFError, gzip.BadGzipFile) as error:
        raise InvalidError(
            f"The source {name} is cut short or damaged ({error}).", "Fetch it again."
        ) from error
    except Exception as error:
        # Whatever library fetched it has errors of its own: they are known by the
        # module they come from.
        if type(error).__module__.partition(".")[0] not in _FETCHERS:
            raise
        raise UnavailableError(
            f"The source {name} cannot be read ({error}).",
            "Check that it can be reached and is whole, then run the command again.",
        ) from error


_FETCHERS = {"aiohttp", "botocore", "fsspec", "requests", "s3fs", "zlib", "zstandard"}
_FETCHERS |= {"zstd", "gcsfs", "adlfs"}


def cut(whole: Piece, *, lines: bool) -> Iterable[Piece]:
    """Cut a large source that consists of lines into pieces that are read alone."""
    if not lines or whole.size <= PIECE_BYTES:
        return [whole]
    starts = range(0, whole.size, PIECE_BYTES)
    stops = (min(start + PIECE_BYTES, whole.size) for start in starts)
    return [whole._replace(start=a, stop=b) for a, b in zip(starts, stops, strict=True)]


def packed(
    pieces: Iterable[Piece], most: int = PIECES, largest: int = PIECE_BYTES
) -> list[tuple[Piece, ...]]:
    """Group pieces into tasks: small sources together, up to a number and a size."""
    tasks: list[tuple[Piece, ...]] = []
    group: list[Piece] = []
    length = 0
    for piece in pieces:
        size = piece.stop - piece.start
        if group and (length + size > largest or len(group) == most):
            tasks.append(tuple(group))
            group, length = [], 0
        group.append(piece)
        length += size
    return [*tasks, tuple(group)] if group else tasks
