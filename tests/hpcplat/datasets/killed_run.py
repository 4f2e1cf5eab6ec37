"""A training run to be killed: ranks apply samples, rank 0 checkpoints the order.

Called as ``killed_run.py FOLDER DATASET WORLD BATCH LIMIT``. What a rank applies since
the newest checkpoint is undone by a restart, as a model's state would be.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from hpcplat import datasets, files
from hpcplat.datasets.cursor import share_of

CHECKPOINT_EVERY = 5
SEED = 11


def main() -> None:
    folder, dataset = Path(sys.argv[1]), sys.argv[2]
    world, batch, limit = (int(word) for word in sys.argv[3:])
    cursor = resumed(folder, dataset)
    for applied in folder.glob("applied/*.npy"):
        if int(applied.name.partition("-")[0]) >= cursor.position:
            applied.unlink()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(world)
    ranks = [
        context.Process(
            target=run_rank, args=(folder, dataset, rank, world, batch, limit, barrier)
        )
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in ranks))


def resumed(folder: Path, dataset: str) -> datasets.Cursor:
    version = datasets.open(dataset)
    samples = len(datasets.Columns(version.split("train")))
    checkpoint = folder / "checkpoint.json"
    if not checkpoint.exists():
        return datasets.Cursor(samples, SEED, dataset=version.digest)
    state = json.loads(checkpoint.read_text())
    return datasets.Cursor.from_state(state, samples=samples, dataset=version.digest)


def run_rank(  # noqa: PLR0913
    folder: Path,
    dataset: str,
    rank: int,
    world: int,
    batch: int,
    limit: int,
    barrier: Barrier,
) -> None:
    rows = datasets.Columns(datasets.open(dataset).split("train"))
    cursor = resumed(folder, dataset)
    step = 0
    while cursor.position < limit:
        size = min(batch, limit - cursor.position)
        first, _ = share_of(size, rank, world)
        mine = rows.rows(cursor.share(size, rank, world))["x"]
        # With the rank: of a small last batch some ranks have no sample at all.
        name = f"{cursor.position:09}-{first:04}-{rank}.npy"
        np.save(folder / "applied" / name, mine)
        cursor.position += size
        step += 1
        barrier.wait()
        if step % CHECKPOINT_EVERY == 0 or cursor.position >= limit:
            if rank == 0:
                text = json.dumps(cursor.state())
                files.write_whole(folder / "checkpoint.json", text)
            barrier.wait()


if __name__ == "__main__":
    main()
