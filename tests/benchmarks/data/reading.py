"""Rows, slices and images: our reader beside np.memmap and the bare codecs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numcodecs.blosc import Blosc  # type: ignore[import-untyped]
from numcodecs.zstd import Zstd  # type: ignore[import-untyped]

from hpcplat.datasets import Cursor, Loader, Reading
from hpcplat.datasets.array import DECODED_BYTES, Array
from hpcplat.datasets.samples import Values
from hpcplat.datasets.shard import read_index
from storage.layout import Layout, layout_of
from tests.benchmarks.data import files
from tests.benchmarks.data.side_by_side import Work, side_by_side, table

BATCH = 256
BATCHES = 20
ROUNDS = 41


def report(folder: Path) -> str:
    """Measure all and return the tables."""
    values = files.tokens()
    plain = files.flat(folder / "tokens.bin", values)
    ours = files.sharded(folder / "tokens", values, Layout(files.CHUNK, files.SHARD))
    plain.sum(), ours.all_rows().sum()  # into the page cache
    parts = [_random(plain, ours, length) for length in (2048, 4096)]
    parts += [_sequential(plain, ours), _loader(ours)]
    parts += [_compressed(folder, values, how) for how in ("blosc", "zstd")]
    parts += [_images(folder)]
    return "\n".join(parts)


def _numbers(rows: int, round_: int) -> list[Values]:
    random = np.random.default_rng(round_)
    return [random.integers(0, rows, BATCH) for _ in range(BATCHES)]


def _random(plain: Values, ours: Array, length: int) -> str:
    rows = len(plain) // length
    rectangle = plain[: rows * length].reshape(rows, length)

    def memmap(round_: int) -> int:
        return sum(rectangle[i].size for i in _numbers(rows, round_))

    def reader(round_: int) -> int:
        numbers = _numbers(rows, round_)
        return sum(ours.windows(i * length, length).size for i in numbers)

    found = side_by_side({"np.memmap, fancy index": memmap, "hpcplat": reader}, ROUNDS)
    title = f"Random rows of {length:,} tokens, batches of {BATCH}"
    return table(title, "rows", BATCH * BATCHES, found)


def _sequential(plain: Values, ours: Array) -> str:
    size = 2**20
    starts = range(0, len(plain) - size, size)

    def memmap(_: int) -> None:
        for start in starts:
            np.array(plain[start : start + size])

    def reader(_: int) -> None:
        for start in starts:
            np.array(ours.slice(start, start + size))

    found = side_by_side({"np.memmap": memmap, "hpcplat": reader}, 15)
    return table(
        "Sequential, 2 MiB at a time", "MB", len(starts) * size * 2 / 1e6, found
    )


class _Rows:
    """Rows of one length as samples."""

    def __init__(self, array: Array, length: int) -> None:
        self._array = array
        self._length = length

    def __len__(self) -> int:
        return len(self._array) // self._length

    def batch(self, indices: npt.ArrayLike, positions: npt.ArrayLike) -> Values:
        return self._array.windows(np.asarray(indices) * self._length, self._length)


def _loader(ours: Array) -> str:
    rows = _Rows(ours, 2048)

    def reader(round_: int) -> None:
        for numbers in _numbers(len(rows), round_):
            rows.batch(numbers, numbers)

    # Each goes on where it was, as in training: starting anew is measured elsewhere.
    kinds = {
        "no thread": Reading(BATCH, threads=0, into="torch"),
        "one thread ahead, a batch at a time": Reading(
            BATCH, threads=1, window=1, into="torch"
        ),
        "one thread ahead, as by default": Reading(BATCH, threads=1, into="torch"),
    }
    loaders = {
        f"Loader, torch, {kind}": Loader(rows, Cursor(len(rows), 0), reading)
        for kind, reading in kinds.items()
    }
    ways: dict[str, Work] = {"reader, NumPy": reader}
    for name, loader in loaders.items():
        ways[name] = functools.partial(_round_of, loader)
    found = side_by_side(ways, ROUNDS)
    for loader in loaders.values():
        loader.close()
    return table("Through the loader to a torch tensor", "rows", BATCH * BATCHES, found)


def _round_of(loader: Loader, _: int) -> None:
    """Take some batches, and see the reading ahead through: it belongs to this round."""
    for _ in range(BATCHES):
        next(loader).numel()
    for pending in loader._pending:
        pending.result()


def _compressed(folder: Path, values: Values, how: str) -> str:
    # Larger than what is kept decoded, so that each pass decodes every chunk.
    large = np.resize(values, DECODED_BYTES)  # twice as many bytes
    array = files.sharded(folder / how, large, Layout(files.CHUNK, 2**24), how)
    other = Array(array.folder, threads=1)  # one that holds nothing of the first
    codec = Blosc() if how == "blosc" else Zstd()
    encoded = list(_chunks(array))
    out = np.empty((64, files.CHUNK * 2), np.uint8)
    # Of a large array every row of a batch lies in a chunk of its own. The order is the
    # same in each round: what was decoded last comes last again.
    chunks = np.random.default_rng(0).permutation(len(encoded))

    def bare(_: int) -> None:
        for number, data in enumerate(encoded):
            codec.decode(data, out[number % len(out)])

    def in_order(_: int) -> None:
        for start in range(0, len(large), 2**20):
            other.slice(start, start + 2**20)

    def random(round_: int) -> None:
        draw = np.random.default_rng(round_)
        inside = draw.integers(0, files.CHUNK - 2048, len(chunks))
        for batch in np.split(chunks * files.CHUNK + inside, len(chunks) // 64):
            array.windows(batch, 2048)

    ways: dict[str, Work] = {
        "bare codec, every chunk once": bare,
        "hpcplat, every row in order": in_order,
        "hpcplat, random rows, a chunk decoded for each": random,
    }
    found = side_by_side(ways, 9)
    size = large.nbytes / 1e6
    return table(f"Chunks compressed with {how}, one thread", "MB", size, found)


def _chunks(array: Array) -> Iterator[bytes]:
    """Yield the very chunks that are stored."""
    layout = array.format.shard_layout
    for shard in range(array.format.shards):
        path = array.folder / array.format.shard_key(shard)
        with path.open("rb") as file:
            index = read_index(path, file.fileno(), layout)
        content = path.read_bytes()
        for offset, length in index.tolist():
            yield content[offset : offset + length]


def _images(folder: Path) -> str:
    shape = (4000, 224, 224, 3)
    random = np.random.default_rng(0)
    values = random.integers(0, 256, shape, dtype=np.uint8)
    plain = files.flat(folder / "images.bin", values)
    layout = layout_of(224 * 224 * 3)
    ours = files.sharded(folder / "images", values, layout)

    def numbers(round_: int) -> list[Values]:
        draw = np.random.default_rng(round_)
        return [draw.integers(0, len(values), 64) for _ in range(8)]

    def memmap(round_: int) -> int:
        return sum(plain[i].size for i in numbers(round_))

    def reader(round_: int) -> int:
        return sum(ours.take(i).size for i in numbers(round_))

    found = side_by_side({"np.memmap, fancy index": memmap, "hpcplat": reader}, 25)
    return table("Images of 224x224x3, batches of 64", "images", 64 * 8, found)
