"""Copying a version's files, each hashed on the way."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hpcplat import files
from hpcplat.datasets.damage import DamagedError
from hpcplat.datasets.manifest import FILE_NAME, FileEntry, Manifest

Progress = Callable[[int, int], None]

_BLOCK = 4 * 2**20


def copy_version(
    source: Path, target: Path, manifest: Manifest, threads: int, progress: Progress
) -> None:
    """Copy a version beside ``target``, check every byte, and rename it there.

    ``progress`` gets bytes done and bytes in all. Raises DamagedError for a file that
    is not what was written; then nothing stays.
    """
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    entries = manifest.content.files
    total, done = sum(entry.size for entry in entries.values()), 0
    try:
        for name in entries:
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(threads) as pool:
            jobs = [(source, aside, name, entry) for name, entry in entries.items()]
            for entry, _ in zip(
                entries.values(), pool.map(_copy_file, jobs), strict=True
            ):
                done += entry.size
                progress(done, total)
        files.write_whole(aside / FILE_NAME, manifest.to_json(), 0o444)
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    files.sync_folder(target.parent)


def _copy_file(job: tuple[Path, Path, str, FileEntry]) -> None:
    source, target, name, entry = job
    digest = hashlib.sha256()
    block = bytearray(_BLOCK)
    try:
        reader = (source / name).open("rb", buffering=0)
    except FileNotFoundError as error:
        raise DamagedError.of(source / name, "is missing") from error
    with reader, (target / name).open("wb", buffering=0) as writer:
        while count := reader.readinto(block):
            piece = memoryview(block)[:count]
            digest.update(piece)
            while piece:
                piece = piece[writer.write(piece) :]
        os.fsync(writer.fileno())
        os.fchmod(writer.fileno(), 0o444)
    if digest.hexdigest() != entry.sha256:
        raise DamagedError.of(source / name, "is not what was written")
