"""Changing a store: tags, and removing what nobody reads."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcplat import files
from hpcplat.datasets.manifest import FILE_NAME
from hpcplat.datasets.names import LATEST, SHORT, DatasetPaths, Reference
from hpcplat.datasets.store import Store
from hpcplat.errors import ConflictError, NotFoundError
from storage.publishing import changing, write_tag


def tag(store: Store, reference: str, name: str) -> str:
    """Let a tag stand for a version; returns the version's digest."""
    parsed = Reference.parse(reference)
    digest = store.digest(parsed)
    with changing(store.root, parsed.name) as paths:
        write_tag(paths, name, digest)
    return digest


def untag(store: Store, name: str, tag_name: str) -> None:
    """Remove a tag; the version stays."""
    if tag_name not in store.tags(name):
        raise NotFoundError(f"{name} has no tag {tag_name}.", "See `hpcplat data ls`.")
    with changing(store.root, name) as paths:
        (paths.tags / tag_name).unlink()


def remove(store: Store, reference: str, *, force: bool = False) -> str:
    """Remove one version and what it alone holds; returns its digest.

    Files that other versions share stay theirs. Raises ConflictError while somebody
    reads it (where the file system has locks), or when a tag of a person stands for
    it, unless ``force``.
    """
    parsed = Reference.parse(reference)
    digest = store.digest(parsed)
    tags = [name for name, found in store.tags(parsed.name).items() if found == digest]
    own = [name for name in tags if name != LATEST]
    if own and not force:
        raise ConflictError(
            f"{parsed.name}@{digest[:SHORT]} is tagged {', '.join(own)}.",
            "Remove the tags first, or use --force.",
        )
    with changing(store.root, parsed.name) as paths, _unread(paths, digest, force):
        for name in tags:
            (paths.tags / name).unlink()
        # Out of sight by one rename: nobody ever sees half of it.
        paths.drafts.mkdir(exist_ok=True)
        gone = paths.drafts / f"removed-{digest}"
        paths.version(digest).rename(gone)
        files.sync_folder(paths.versions)
        _newest_is_latest(store, paths, parsed.name)
        shutil.rmtree(gone)
    return digest


def remove_all(store: Store, name: str, *, force: bool = False) -> int:
    """Remove a dataset with all of its versions; returns how many there were."""
    versions = store.versions(name)
    for digest in versions:
        remove(store, f"{name}@{digest}", force=force)
    shutil.rmtree(DatasetPaths.under(store.root, name).folder)
    return len(versions)


@contextmanager
def _unread(paths: DatasetPaths, digest: str, force: bool) -> Iterator[None]:
    """Refuse a version that a reader holds a shared lock on."""
    handle = os.open(paths.version(digest) / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not force and _is_locked(handle):
            raise ConflictError(
                f"{paths.folder.name}@{digest[:SHORT]} is being read.",
                "Wait for the job to end, or use --force: its readers then fail.",
            )
        yield
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks on this file system: nobody can tell
        return False
    return False


def _newest_is_latest(store: Store, paths: DatasetPaths, name: str) -> None:
    left = store.versions(name)
    if left and LATEST not in store.tags(name):
        write_tag(paths, LATEST, left[-1])


def drafts_of(root: Path, name: str) -> int:
    """Return how many bytes of unfinished work lie under a dataset."""
    folder = DatasetPaths.under(root, name).drafts
    found = folder.rglob("*") if folder.is_dir() else iter(())
    return sum(path.stat().st_size for path in found if path.is_file())
