"""Reading files of a run folder: never through a link, never outside of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcplat.errors import ForbiddenError, NotFoundError

LARGEST_PIECE: Final = 256 * 1024  # bytes
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file, where they begin and where the next begin."""

    data: bytes
    offset: int
    end: int
    size: int


def read_piece(
    root: Path, path: Path, offset: int, limit: int = LARGEST_PIECE
) -> Piece:
    """Return at most ``limit`` bytes of a file below ``root`` from ``offset`` on.

    A negative offset counts from the end. No link that a person made is followed, and
    only plain files are read: the folder is its user's (the one above it too, where
    people's own programs fill it), the service may be root. Raises NotFoundError or
    ForbiddenError.
    """
    with ExitStack() as stack:
        handle = _open_below(stack, root, path.relative_to(root).parts)
        try:
            size = os.fstat(handle).st_size
            start = max(size + offset, 0) if offset < 0 else min(offset, size)
            data = os.pread(handle, limit, start)
        except OSError as error:  # a file server that fails, or lost the file
            raise _unreadable(path.name, error) from error
    return Piece(data, start, start + len(data), size)


def last_lines(root: Path, path: Path, lines: int, limit: int = LARGEST_PIECE) -> Piece:
    """Return the last lines of a file, no more than ``limit`` bytes of them."""
    piece = read_piece(root, path, -limit, limit)
    parts = piece.data.splitlines(keepends=True)
    kept = b"".join(parts[-lines:]) if lines else b""
    return Piece(kept, piece.end - len(kept), piece.end, piece.size)


def _open_below(stack: ExitStack, root: Path, parts: Sequence[str]) -> int:
    try:
        above = _kept(stack, _open_trusted(root.parent))
        handle = _kept(stack, _open_trusted(Path(root.name), above))
        owner = os.fstat(handle).st_uid
        for part in parts[:-1]:
            handle = _kept(stack, os.open(part, _FOLDER, dir_fd=handle))
        handle = _kept(stack, os.open(parts[-1], _FILE, dir_fd=handle))
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{'/'.join(parts)} is not there yet.", "Wait until the job has started."
        ) from error
    except OSError as error:
        raise _unreadable("/".join(parts), error) from error
    status = os.fstat(handle)
    # A second name may be of a file that its maker can't read, but the service can.
    is_borrowed = status.st_nlink > 1 and status.st_uid != owner
    if not stat.S_ISREG(status.st_mode) or is_borrowed:
        raise ForbiddenError(
            f"{'/'.join(parts)} is no plain file.", "Look at it there."
        )
    return handle


def _unreadable(name: str, error: OSError) -> ForbiddenError:
    return ForbiddenError(
        f"{name} can't be read ({error.strerror}).",
        "The service follows no links in a run folder.",
    )


def _open_trusted(folder: Path, above: int | None = None) -> int:
    """Open a folder by its name in another; through a link if root or we made it."""
    try:
        return os.open(folder, _FOLDER, dir_fd=above)
    except OSError:
        found = os.stat(folder, dir_fd=above, follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise
        return os.open(folder, _FOLDER & ~os.O_NOFOLLOW, dir_fd=above)


def _kept(stack: ExitStack, handle: int) -> int:
    stack.callback(os.close, handle)
    return handle
