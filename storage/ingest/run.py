"""A whole ingest: plan, make the parts in several processes, assemble, publish."""

from __future__ import annotations

import hashlib
import importlib.metadata
import multiprocessing
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcplat.datasets import tokenizer as tokenizers
from hpcplat.datasets.manifest import Manifest
from storage.ingest.assemble import Dealt, duplicates, read_all, summed, write_splits
from storage.ingest.documents import SUFFIXES, can_be_cut
from storage.ingest.options import TextOptions, label_of
from storage.ingest.parts import PartRows, part_folder
from storage.ingest.sources import Piece, cut, listed, packed, stamped
from storage.ingest.text import make_part, tokenizer_for
from storage.publishing import Draft, changing
from storage.writing import disk_of

Task = tuple[Piece, ...]
Progress = Callable[[int, int], None]

_ALL_SUFFIXES = tuple(
    suffix + packing for suffix in SUFFIXES for packing in ("", ".gz", ".zst")
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the version goes: root folder, dataset name, and tags to set."""

    root: Path
    name: str
    tags: Sequence[str] = ()


def quiet(done: int, total: int) -> None:
    """Show no progress."""


def ingest_text(
    sources: Sequence[str],
    options: TextOptions,
    target: Target,
    *,
    processes: int = 1,
    progress: Progress = quiet,
) -> Manifest:
    """Make a version of a token dataset from text sources and publish it.

    The result is the same for any number of processes and interruptions.
    """
    options = _with_hash(options)
    paths = listed(sources, _ALL_SUFFIXES)
    wholes = [stamped(path) for path in paths]
    pieces = [
        p for whole in wholes for p in cut(whole, can_be_cut(whole.path, options))
    ]
    tasks = packed(pieces)
    label = label_of(options, wholes)
    with changing(target.root, target.name) as dataset, disk_of(target.root):
        work = dataset.drafts / label
        _make_parts(work, tasks, options, processes, progress)
        folders = [part_folder(work, number) for number in range(len(tasks))]
        draft = Draft(dataset, f"{label}.version", "tokens")
        manifest = _assembled(draft, folders, options, target, wholes)
        shutil.rmtree(dataset.drafts)
    return manifest


def _with_hash(options: TextOptions) -> TextOptions:
    if options.tokenizer == tokenizers.BYTES:
        return options
    tokenizer_for(options)
    content = Path(options.tokenizer).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    return options.model_copy(update={"tokenizer_hash": found})


def _make_parts(
    work: Path,
    tasks: Sequence[Task],
    options: TextOptions,
    processes: int,
    progress: Progress,
) -> None:
    (work / "parts").mkdir(parents=True, exist_ok=True)
    left = [n for n in range(len(tasks)) if not part_folder(work, n).exists()]
    done = len(tasks) - len(left)
    progress(done, len(tasks))
    if processes == 1 or len(left) < 2:
        for number in left:
            make_part(part_folder(work, number), tasks[number], options)
            done += 1
            progress(done, len(tasks))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures: list[Future[None]] = [
            pool.submit(make_part, part_folder(work, number), tasks[number], options)
            for number in left
        ]
        for future in as_completed(futures):
            future.result()
            done += 1
            progress(done, len(tasks))


def _assembled(
    draft: Draft,
    folders: Sequence[Path],
    options: TextOptions,
    target: Target,
    wholes: Sequence[Piece],
) -> Manifest:
    rows = read_all(folders)
    tokenizer = tokenizer_for(options)
    counts = dict(summed(rows))
    dealt = Dealt(rows, options.splitting)
    if options.deduplicate:
        counts["duplicates"] = _leave_out_duplicates(rows, dealt)
    size = tokenizer.vocabulary_size
    write_splits(draft, folders, rows, dealt, size, options.compressor)
    attributes: dict[str, Any] = {
        "tokenizer": tokenizers.BYTES,
        "vocabulary_size": size,
        "end_of_document": tokenizer.end_of_document,
    }
    if isinstance(tokenizer, tokenizers.FileTokenizer):
        attributes |= {"tokenizer": "file", "end_token": tokenizer.end_token}
        content = Path(options.tokenizer).read_bytes()
        draft.add_file(tokenizers.FILE_NAME, content)
    provenance = provenance_of(options, wholes, counts)
    return draft.publish(attributes, provenance, tags=target.tags)


def _leave_out_duplicates(rows: Sequence[PartRows], dealt: Dealt) -> int:
    repeated = duplicates(np.concatenate([one.hashes for one in rows]))
    dealt.leave_out(repeated)
    return int(repeated.sum())


def provenance_of(
    options: TextOptions, wholes: Sequence[Piece], counts: Mapping[str, int]
) -> dict[str, Any]:
    """Return where a version came from: sources, options, counts, code version."""
    return {
        "sources": [{"path": one.path, "size": one.size} for one in wholes],
        "options": options.model_dump(mode="json"),
        "counts": dict(counts),
        "hpcplat": importlib.metadata.version("hpcplat"),
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
