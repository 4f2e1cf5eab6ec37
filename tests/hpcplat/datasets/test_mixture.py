from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcplat.datasets import Mixture, Part
from hpcplat.datasets.mixture import as_integers
from hpcplat.errors import ConflictError, InvalidError

weights = st.lists(st.integers(1, 60), min_size=1, max_size=9)


@pytest.mark.slow
@given(weights=weights, start=st.integers(0, 10**15), count=st.integers(1, 2000))
@settings(max_examples=200)
def test_any_stretch_holds_the_shares(
    weights: list[int], start: int, count: int
) -> None:
    mixture = Mixture([Part(10, weight) for weight in weights], 0)
    dealt = mixture.parts_at(np.arange(start, start + count))
    found = np.bincount(dealt, minlength=len(weights))
    share = np.array(weights) / sum(weights) * count
    assert np.abs(found - share).max() <= len(weights)
    # A whole period is exact to the sample, wherever it begins.
    period = mixture.parts_at(np.arange(start, start + mixture.period))
    np.testing.assert_array_equal(
        np.bincount(period, minlength=len(weights)), mixture.weights
    )


@pytest.mark.slow
@given(weights=weights, seed=st.integers(0, 99))
def test_each_part_runs_through_its_own_epochs(weights: list[int], seed: int) -> None:
    parts = [Part(7 + 5 * n, weight) for n, weight in enumerate(weights)]
    mixture = Mixture(parts, seed)
    found = mixture.indices(0, 500)
    base = 0
    for part in parts:
        mine = found[(found >= base) & (found < base + part.samples)] - base
        for epoch in range(len(mine) // part.samples):
            once = np.sort(mine[epoch * part.samples : (epoch + 1) * part.samples])
            np.testing.assert_array_equal(once, np.arange(part.samples))
        base += part.samples


@given(
    weights=weights,
    start=st.integers(0, 10**12),
    counts=st.lists(st.integers(0, 50), max_size=6),
    world=st.integers(1, 7),
)
def test_the_order_does_not_depend_on_who_asks(
    weights: list[int], start: int, counts: list[int], world: int
) -> None:
    parts = [Part(1000, weight) for weight in weights]
    whole = Mixture(parts, 5).indices(start, sum(counts))
    mixture = Mixture(parts, 5, position=start)
    pieces = []
    for count in counts:
        pieces += [mixture.share(count, rank, world) for rank in range(world)]
        mixture.position += count
    np.testing.assert_array_equal(np.concatenate([[], *pieces]), whole)


def test_the_state_is_small_and_brings_the_order_back() -> None:
    parts = [Part(10**9 + n, f"0.{n + 1:02}", f"{n:064}") for n in range(20)]
    mixture = Mixture(parts, 2**60, position=10**12)
    text = json.dumps(mixture.state())
    assert len(text) < 1024
    again = Mixture.from_state(json.loads(text), parts)
    np.testing.assert_array_equal(again.take(100), mixture.take(100))
    with pytest.raises(ConflictError):
        Mixture.from_state(json.loads(text), parts[::-1])


def test_weights_become_the_smallest_integers() -> None:
    assert as_integers([0.7, 0.3]) == (7, 3)
    assert as_integers([2, 4]) == (1, 2)
    assert as_integers(["1/3", 1]) == (1, 3)
    with pytest.raises(InvalidError, match="above 0"):
        as_integers([1, 0])
    with pytest.raises(InvalidError, match="fewer digits"):
        as_integers([1, 0.1234567891234])
    with pytest.raises(InvalidError, match="no number"):
        as_integers(["much"])


def test_the_largest_period_does_not_overflow() -> None:
    mixture = Mixture([Part(10, 2**29 - 1), Part(10, 2**29)], 0)
    start = 2**62
    dealt = mixture.parts_at(np.arange(start, start + 1000))
    assert abs(int(dealt.sum()) - 500) <= 1
