from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

from hpcplat.datasets import (
    Columns,
    Cursor,
    ImageRows,
    Joined,
    Loader,
    Mixture,
    Part,
    Reading,
    TokenWindows,
)
from hpcplat.datasets.samples import Batch
from hpcplat.datasets.torch_data import SampleDataset, torch_loader
from hpcplat.datasets.version import DatasetVersion
from hpcplat.errors import InvalidError

Make = Callable[..., DatasetVersion]


@pytest.fixture(params=["none", "blosc"])
def windows(
    make_version: Make, tokens: npt.NDArray[np.uint16], request: pytest.FixtureRequest
) -> TokenWindows:
    version = make_version(
        {"tokens": tokens, "documents": np.array([0, len(tokens)], np.uint64)},
        how=request.param,
        vocabulary_size=1000,
    )
    return TokenWindows(version.split("train"), 50)


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("world", [1, 3])
def test_the_ranks_read_the_global_order(
    windows: TokenWindows, threads: int, window: int | None, world: int
) -> None:
    expected = windows.rows(Cursor(len(windows), 1).indices(40, 13 * 16))
    found = []
    for rank in range(world):
        cursor = Cursor(len(windows), 1, position=40)
        reading = Reading(16, rank, world, threads=threads, window=window)
        with Loader(windows, cursor, reading) as loader:
            found.append(list(itertools.islice(loader, 13)))
        assert cursor.position == 40 + 13 * 16
    joined = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    np.testing.assert_array_equal(np.concatenate(joined), expected)


def test_it_resumes_at_the_batch_that_was_not_handed_out(windows: TokenWindows) -> None:
    cursor = Cursor(len(windows), 1)
    with Loader(windows, cursor, Reading(8, ahead=4)) as loader:
        for _ in range(5):
            next(loader)
        state = cursor.state()
        expected = next(loader)
    with Loader(windows, Cursor.from_state(state), Reading(8)) as loader:
        np.testing.assert_array_equal(next(loader), expected)


class Counting:
    """Samples that count how often they are read, of some bytes each."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.read = 0
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 1000

    def batch(self, indices: npt.ArrayLike, positions: npt.ArrayLike) -> Batch:
        with self.lock:
            self.read += 1
        return np.zeros((len(np.asarray(indices)), self.size), np.uint8)


def test_no_more_than_the_bound_is_read_ahead() -> None:
    samples = Counting(1)
    reading = Reading(4, ahead=3, threads=2, window=1)
    with Loader(samples, Cursor(1000, 0), reading) as loader:
        for taken in range(1, 50):
            next(loader)
            assert samples.read <= taken + 3


@pytest.mark.parametrize(
    ("size", "at_once"), [(8, 16), (2**17, 8), (2**20, 1), (2**23, 1)]
)
def test_small_batches_are_read_together(size: int, at_once: int) -> None:
    """4 samples a batch: as many batches as make 4 MiB, 16 at most."""
    samples = Counting(size)
    with Loader(samples, Cursor(1000, 0), Reading(4, ahead=1)) as loader:
        next(loader)  # alone: now the size is known
        for _ in range(2 * at_once):
            next(loader)
        assert samples.read == 3


def test_a_fault_in_a_thread_reaches_the_caller(windows: TokenWindows) -> None:
    beyond = Cursor(len(windows) + 10**6, 1)
    with (
        Loader(windows, beyond, Reading(64)) as loader,
        pytest.raises(InvalidError, match="Window"),
    ):
        next(loader)


def test_tensors_share_the_values(windows: TokenWindows) -> None:
    order = Cursor(len(windows), 1)
    with Loader(windows, order, Reading(8, into="torch")) as loader:
        batch = next(loader)
    assert batch.dtype == torch.uint16
    expected = windows.rows(Cursor(len(windows), 1).take(8))
    np.testing.assert_array_equal(batch.numpy(), expected)


def test_a_mixture_of_sets_is_read_in_its_order(make_version: Make) -> None:
    sets = []
    for number in range(3):
        rows = np.arange(100 + number, dtype=np.int64) + 1000 * number
        version = make_version({"x": rows, "y": rows * 2}, "columns", f"set{number}")
        sets.append(Columns(version.split("train"), ["x", "y"]))
    parts = [
        Part(len(one), weight) for one, weight in zip(sets, (5, 2, 1), strict=True)
    ]
    joined = Joined(sets)
    with Loader(joined, Mixture(parts, 3), Reading(16)) as loader:
        batch = next(loader)
    bases = np.cumsum([0, 100, 101])
    indices = Mixture(parts, 3).take(16)
    which = np.searchsorted(bases, indices, side="right") - 1
    np.testing.assert_array_equal(batch["x"], indices - bases[which] + 1000 * which)
    np.testing.assert_array_equal(batch["y"], batch["x"] * 2)
    assert np.bincount(which).tolist() == [10, 4, 2]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_a_torch_loader_gives_the_same_batches(
    windows: TokenWindows, processes: int
) -> None:
    loader = torch_loader(
        windows, Cursor(len(windows), 1), Reading(8), 10, processes=processes
    )
    found = torch.cat(list(loader)).numpy()
    expected = windows.rows(Cursor(len(windows), 1).take(80))
    np.testing.assert_array_equal(found, expected)


def test_single_samples_for_other_samplers(make_version: Make) -> None:
    images = np.arange(40 * 12, dtype=np.uint16).astype(np.uint8).reshape(40, 2, 2, 3)
    version = make_version(
        {"images": images, "labels": np.arange(40)}, "images", class_names=[]
    )
    data = SampleDataset(ImageRows(version.split("train")))
    loaded = list(torch.utils.data.DataLoader(data, batch_size=8, shuffle=False))
    assert len(data) == 40
    np.testing.assert_array_equal(torch.cat([b["images"] for b in loaded]), images)
    assert data[3]["labels"] == 3


@pytest.mark.parametrize(("batch", "rank"), [(0, 0), (1, 1), (8, -1)])
def test_nonsense_is_refused(batch: int, rank: int) -> None:
    with pytest.raises(InvalidError):
        Reading(batch, rank)
