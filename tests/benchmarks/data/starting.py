"""Opening a version of a thousand million samples, and resuming in the middle of it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from hpcplat.datasets.array_format import ArrayFormat, to_zarr_json
from hpcplat.datasets.manifest import (
    FILE_NAME,
    ArraySchema,
    Content,
    FileEntry,
    Manifest,
    SplitSchema,
)
from hpcplat.datasets.shard import ABSENT, encode_index

SAMPLES = 10**9
LENGTH = 512
SHARD_TOKENS = 2**26  # 128 MiB a shard, as ingest makes them: 7,630 shards of holes
CHUNK = 2**16

PROGRAM = """
import sys, time, json
from pathlib import Path
import numpy, hpcplat.datasets.version, hpcplat.datasets.windows, hpcplat.datasets.cursor
from hpcplat.datasets import open, TokenWindows, Cursor
clock = time.process_time if sys.argv[2] == "processor" else time.perf_counter
t0 = clock()
version = open(sys.argv[1])
windows = TokenWindows(version.split("train"), 512)
cursor = Cursor(len(windows), 0, dataset=version.digest)
rows = windows.rows(cursor.take(256))
t1 = clock()
state = {**cursor.state(), "position": 10**9 - 300}
t2 = clock()
again = Cursor.from_state(state, samples=len(windows), dataset=version.digest)
rows = windows.rows(again.take(256))
t3 = clock()
print(json.dumps([len(windows), (t1 - t0) * 1e3, (t3 - t2) * 1e3]))
"""


def sparse_version(folder: Path) -> Path:
    """Write a version of holes: zeros that take no room on the disk."""
    array = ArrayFormat((SAMPLES * LENGTH + 1,), np.dtype("<u2"), CHUNK, SHARD_TOKENS)
    offsets = ArrayFormat((2,), np.dtype("<u8"), CHUNK, CHUNK)
    entries: dict[str, FileEntry] = {}
    for name, about in (("tokens", array), ("documents", offsets)):
        place = folder / "train" / name
        place.mkdir(parents=True)
        for shard in range(about.shards):
            size = _hole(place / about.shard_key(shard), about, shard)
            entries[f"train/{name}/{about.shard_key(shard)}"] = _entry(size)
        (place / "zarr.json").write_text(to_zarr_json(about))
        size = (place / "zarr.json").stat().st_size
        entries[f"train/{name}/zarr.json"] = _entry(size)
    arrays = {
        "tokens": ArraySchema(dtype="uint16", shape=array.shape),
        "documents": ArraySchema(dtype="uint64", shape=(2,)),
    }
    content = Content(
        kind="tokens",
        attributes={"vocabulary_size": 2},
        splits={"train": SplitSchema(samples=1, arrays=arrays)},
        files=entries,
    )
    manifest = Manifest(content=content, provenance={})
    (folder / FILE_NAME).write_text(manifest.to_json())
    return folder


def _entry(size: int) -> FileEntry:
    return FileEntry(size=size, sha256="0" * 64)


def _hole(path: Path, about: ArrayFormat, shard: int) -> int:
    chunks = about.chunks_in(shard)
    index = np.full((about.shard_layout.chunks, 2), ABSENT, np.uint64)
    index[:chunks, 0] = np.arange(chunks, dtype=np.uint64) * np.uint64(
        about.chunk_bytes
    )
    index[:chunks, 1] = about.chunk_bytes
    payload = chunks * about.chunk_bytes
    tail = encode_index(index)
    with path.open("wb") as file:
        os.truncate(file.fileno(), payload)
        file.seek(payload)
        file.write(tail)
    return payload + len(tail)


def report(folder: Path) -> str:
    """Measure in new processes and return the table."""
    version = sparse_version(folder / "sparse")
    processor, wall = (_medians(version, clock) for clock in ("processor", "wall"))
    return "\n".join(
        [
            f"### A version of {SAMPLES:,} samples ({LENGTH} tokens each)",
            "",
            "| step, median of 9 new processes | processor ms | wall ms |",
            "|---|---:|---:|",
            f"| open, first batch of 256 | {processor[0]:.0f} | {wall[0]:.0f} |",
            f"| resume near sample 10^9, 256 | {processor[1]:.0f} | {wall[1]:.0f} |",
            "",
        ]
    )


def _medians(version: Path, clock: str) -> tuple[float, float]:
    runs = []
    for _ in range(9):
        words = [sys.executable, "-c", PROGRAM, str(version), clock]
        out = subprocess.run(words, capture_output=True, check=True, text=True)
        runs.append(json.loads(out.stdout))
    start, resume = (statistics.median(run[k] for run in runs) for k in (1, 2))
    return start, resume
