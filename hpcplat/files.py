"""The one place that writes files: aside, flushed to disk, then renamed."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """A Unix user and group, by number."""

    uid: int
    gid: int


def write_whole(
    path: Path,
    content: bytes | str,
    mode: int = 0o644,
    *,
    durable: bool = True,
    owner: Owner | None = None,
) -> None:
    """Write ``path`` so that readers see the old content or the new, never a part.

    The parent folder must exist; ``mode`` is set exactly, whatever the umask. What
    need not outlive a power cut is not ``durable``: it costs no wait for the disk.
    ``owner`` is who owns the file from its first moment under its name (root only).
    """
    data = content.encode() if isinstance(content, str) else content
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            if owner is not None:
                os.fchown(file.fileno(), owner.uid, owner.gid)
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:  # a full disk or Ctrl-C: leave no half file behind
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
