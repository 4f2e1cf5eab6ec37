"""The shuffle against true random permutations, by statistics that know the answer."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from hpcplat.datasets.permutation import SORTED_UP_TO, Permutation

Numbers = npt.NDArray[np.int64]

# Above the bound up to which hashes are sorted, so that the network is tested.
SIZE = SORTED_UP_TO + 4465
RUNS = 24


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_orders_of_few_samples_are_equally_likely(size: int) -> None:
    each = 40
    runs = each * math.factorial(size)
    found = Counter(
        tuple(Permutation(size, f"key {run}")(np.arange(size)).tolist())
        for run in range(runs)
    )
    orders = itertools.permutations(range(size))
    chi2 = sum((found[order] - each) ** 2 / each for order in orders)
    freedom = math.factorial(size) - 1
    assert abs(chi2 - freedom) < 4 * math.sqrt(2 * freedom)


def _spread(order: Numbers) -> float:
    """Chi-square of the places of stretches of samples (64 x 64 fields)."""
    places = np.arange(SIZE) * 64 // SIZE, order * 64 // SIZE
    fields = np.bincount(places[0] * 64 + places[1], minlength=64 * 64)
    expected = SIZE / 64**2
    return float(((fields - expected) ** 2).sum() / expected)


def _steps(order: Numbers) -> float:
    """Chi-square of the distances between neighbours, all around."""
    fields = np.bincount(np.diff(order) % SIZE * 1000 // SIZE, minlength=1000)
    expected = (SIZE - 1) / 1000
    return float(((fields - expected) ** 2).sum() / expected)


def _ascents(order: Numbers) -> float:
    return float((np.diff(order) > 0).sum())


def _fixed(order: Numbers) -> float:
    return float((order == np.arange(SIZE)).sum())


def _neighbours(order: Numbers) -> float:
    return float((np.abs(np.diff(order)) == 1).sum())


def _correlation(order: Numbers) -> float:
    return float(np.corrcoef(order[:-1], order[1:])[0, 1])


def _cycles(order: Numbers) -> float:
    """Number of cycles, by following the smallest number of each until it is found."""
    label, step = np.arange(SIZE), order.copy()
    for _ in range(SIZE.bit_length()):
        label, step = np.minimum(label, label[step]), step[step]
    return float((label == np.arange(SIZE)).sum())


def _low_bits(order: Numbers) -> float:
    """How often the lowest bits of place and sample agree."""
    return float(((order ^ np.arange(SIZE)) & 1 == 0).sum())


STATISTICS: list[Callable[[Numbers], float]] = [
    _spread,
    _steps,
    _ascents,
    _fixed,
    _neighbours,
    _correlation,
    _cycles,
    _low_bits,
]


@pytest.fixture(scope="module")
def orders() -> tuple[list[Numbers], list[Numbers]]:
    random = np.random.default_rng(0)
    truly = [random.permutation(SIZE) for _ in range(RUNS)]
    ours = [Permutation(SIZE, f"key {run}")(np.arange(SIZE)) for run in range(RUNS)]
    return truly, ours


@pytest.mark.parametrize("statistic", STATISTICS)
def test_it_looks_like_a_true_random_permutation(
    statistic: Callable[[Numbers], float], orders: tuple[list[Numbers], list[Numbers]]
) -> None:
    truly, ours = (np.array([statistic(order) for order in part]) for part in orders)
    error = math.sqrt((truly.var(ddof=1) + ours.var(ddof=1)) / RUNS)
    assert abs(truly.mean() - ours.mean()) < 4 * error
    assert 1 / 3 < ours.std(ddof=1) / truly.std(ddof=1) < 3


def test_the_statistics_find_a_poor_shuffle() -> None:
    poor = (np.arange(SIZE) * 7919 + 13) % SIZE  # a permutation, but a regular one
    truly = np.random.default_rng(0).permutation(SIZE)
    assert _spread(poor) < _spread(truly) / 10 or _steps(poor) > 10 * _steps(truly)


def test_two_epochs_have_nothing_in_common() -> None:
    first, second = (Permutation(SIZE, f"7/{e}")(np.arange(SIZE)) for e in (0, 1))
    assert (first == second).sum() < 8
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
