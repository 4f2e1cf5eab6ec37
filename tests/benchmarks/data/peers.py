"""Other readers on the same tokens: random rows of 2,048, ratio to np.memmap.

Those that need a torch of their own are measured by ``other_venv.py`` with the Python
that the variable ``PEERS_PYTHON`` names, if it is set.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import tensorstore
import zarr
import zarrs  # noqa: F401 (registers its codec pipeline)

from hpcplat.datasets.samples import Values
from storage.layout import Layout
from tests.benchmarks.data import files
from tests.benchmarks.data.side_by_side import Work, side_by_side, table

LENGTH = 2048
TOKENS = 20_000_000
ROUNDS = 9

Take = Callable[[list[int]], object]


def report(folder: Path) -> str:
    """Measure each peer against np.memmap, in rounds of some rows."""
    values = files.tokens()[:TOKENS]
    plain = files.flat(folder / "tokens.bin", values)
    ours = files.sharded(folder / "z", values, Layout(files.CHUNK, 2**22))
    peers: dict[str, tuple[Take, int]] = {
        "hpcplat": (lambda rows: ours.windows(np.array(rows) * LENGTH, LENGTH), 256),
        "Megatron IndexedDataset, rows as documents": (_megatron(folder, plain), 256),
        "h5py, contiguous": (_h5py(folder, values), 256),
        "tensorstore, cached, batched": (_tensorstore(folder / "z"), 256),
        "zarrs": (_zarr(folder / "z", "zarrs.ZarrsCodecPipeline"), 256),
        "zarr-python": (_zarr(folder / "z", None), 256),
    }
    parts = []
    for name, (take, rows) in peers.items():
        parts.append(_line(plain, name, take, rows))
    title = f"### Random rows of {LENGTH:,} tokens: others on the same data\n"
    head = "| reader | rows/s | processor time, ratio to np.memmap | wall |"
    lines = [title, head, "|---|---:|---:|---:|", *parts, *_others(folder)]
    return "\n".join([*lines, ""])


def _line(plain: Values, name: str, take: Take, rows: int) -> str:
    rectangle = plain[: len(plain) // LENGTH * LENGTH].reshape(-1, LENGTH)

    def numbers(round_: int) -> list[int]:
        draw = np.random.default_rng(round_)
        found: list[int] = draw.integers(0, len(rectangle), rows).tolist()
        return found

    ways: dict[str, Work] = {
        "np.memmap": lambda round_: rectangle[numbers(round_)].size,
        name: lambda round_: take(numbers(round_)),
    }
    found = side_by_side(ways, ROUNDS)
    return table("", "rows", rows, found).splitlines()[-1]


def _megatron(folder: Path, plain: Values) -> Take:
    from megatron.core.datasets.indexed_dataset import (
        IndexedDataset,
        IndexedDatasetBuilder,
    )

    builder = IndexedDatasetBuilder(str(folder / "m.bin"), np.uint16)
    for start in range(0, len(plain) - LENGTH, LENGTH):
        builder.add_document(np.array(plain[start : start + LENGTH]), [LENGTH])
    builder.finalize(str(folder / "m.idx"))
    data = IndexedDataset(str(folder / "m"))
    last = len(data) - 1
    return lambda rows: np.stack([data[min(row, last)] for row in rows])


def _h5py(folder: Path, values: Values) -> Take:
    file = h5py.File(folder / "t.h5", "w")
    data = file.create_dataset("tokens", data=values)
    return lambda rows: np.stack([data[r * LENGTH : (r + 1) * LENGTH] for r in rows])


def _tensorstore(folder: Path) -> Take:
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder)},
        "recheck_cached_data": False,
    }
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 2**29}})
    data = tensorstore.open(spec, context=context).result()

    def take(rows: list[int]) -> object:
        jobs = [data[r * LENGTH : (r + 1) * LENGTH].read() for r in rows]
        return np.stack([job.result() for job in jobs])

    return take


def _zarr(folder: Path, pipeline: str | None) -> Take:
    array = zarr.open_array(folder, mode="r")
    name = "zarr.core.codec_pipeline.BatchedCodecPipeline"
    settings = {"codec_pipeline.path": pipeline or name}

    def take(rows: list[int]) -> object:
        with zarr.config.set(settings):
            opened = zarr.open_array(folder, mode="r") if pipeline else array
            parts = [opened[r * LENGTH : (r + 1) * LENGTH] for r in rows]
        return np.stack(parts)

    return take


def _others(folder: Path) -> list[str]:
    python = os.environ.get("PEERS_PYTHON")
    if not python:
        return []
    program = Path(__file__).with_name("other_venv.py")
    words = [python, str(program), str(folder), str(LENGTH)]
    out = subprocess.run(words, capture_output=True, check=True, text=True)
    return [line for line in out.stdout.splitlines() if line.startswith("|")]
