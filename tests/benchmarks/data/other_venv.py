"""MosaicML, LitData and WebDataset on the same tokens; runs without hpcplat.

``other_venv.py FOLDER LENGTH``: FOLDER holds tokens.bin. Prints lines of a table.
"""

from __future__ import annotations

import functools
import io
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 6_000
TAKEN = 256
ROUNDS = 7

Take = Callable[[list[int]], Any]


def main() -> None:
    folder, length = Path(sys.argv[1]), int(sys.argv[2])
    plain = np.memmap(folder / "tokens.bin", np.uint16, "r")
    rows = plain[: ROWS * length].reshape(ROWS, length)
    for name, make in (
        ("MosaicML streaming", _mosaic),
        ("LitData", _litdata),
        ("WebDataset, in the order of the file", _webdataset),
    ):
        print(_line(name, rows, make(folder, rows)))


def _line(name: str, rows: np.ndarray, take: Take) -> str:
    ratios, walls, spent = [], [], []
    for number in range(ROUNDS + 1):
        picked = np.random.default_rng(number).integers(0, ROWS, TAKEN).tolist()
        base = _timed(functools.partial(rows.__getitem__, picked))
        one = _timed(functools.partial(take, picked))
        if number:
            ratios.append(base[0] / one[0])
            walls.append(base[1] / one[1])
            spent.append(one[1])
    rate = TAKEN / statistics.median(spent)
    ratio, wall = statistics.median(ratios), statistics.median(walls)
    return f"| {name} | {rate:,.0f} | {ratio:.4f} | {wall:.4f} |"


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return max(time.process_time() - processor, 1e-9), time.perf_counter() - wall


def _mosaic(folder: Path, rows: np.ndarray) -> Take:
    from streaming import (  # type: ignore[import-not-found]
        MDSWriter,
        StreamingDataset,
    )

    out = str(folder / "mds")
    with MDSWriter(out=out, columns={"x": "ndarray:uint16"}) as writer:
        for row in rows:
            writer.write({"x": np.array(row)})
    data = StreamingDataset(local=out, batch_size=1, shuffle=False)
    return lambda picked: np.stack([data[number]["x"] for number in picked])


def _litdata(folder: Path, rows: np.ndarray) -> Take:
    from litdata import StreamingDataset  # type: ignore[import-not-found]
    from litdata.streaming.cache import Cache  # type: ignore[import-not-found]

    out = str(folder / "litdata")
    cache = Cache(out, chunk_bytes="64MB")
    for number, row in enumerate(rows):
        cache[number] = {"x": np.array(row)}
    cache.done()
    cache.merge()
    data = StreamingDataset(out)
    return lambda picked: np.stack([data[number]["x"] for number in picked])


def _webdataset(folder: Path, rows: np.ndarray) -> Take:
    import webdataset  # type: ignore[import-not-found]

    path = str(folder / "w.tar")
    with webdataset.TarWriter(path) as writer:
        for number, row in enumerate(rows):
            file = io.BytesIO()
            np.save(file, row)
            writer.write({"__key__": f"{number:06}", "npy": file.getvalue()})

    def endless() -> Iterator[np.ndarray]:
        while True:
            data = webdataset.WebDataset(path, shardshuffle=False)
            for sample in data.decode():
                yield sample["npy"]

    stream = endless()
    return lambda picked: np.stack([next(stream) for _ in picked])


if __name__ == "__main__":
    main()
