from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.datasets import Cursor
from hpcplat.datasets.permutation import Permutation
from hpcplat.errors import ConflictError, InvalidError


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**64))
def test_every_epoch_holds_every_sample_once(size: int, seed: int) -> None:
    cursor = Cursor(size, seed)
    for epoch in range(2):
        found = cursor.indices(epoch * size, size)
        np.testing.assert_array_equal(np.sort(found), np.arange(size))


@pytest.mark.parametrize("size", [65_536, 65_537, 70_001, 2**17, 2**18 - 1, 300_000])
def test_the_network_is_a_permutation(size: int) -> None:
    found = Permutation(size, "key")(np.arange(size))
    assert (np.bincount(found, minlength=size) == 1).all()


@given(
    size=st.integers(1, 2**62),
    place=st.integers(0, 2**62),
    count=st.integers(1, 50),
)
def test_any_size_stays_within_bounds(size: int, place: int, count: int) -> None:
    start = place % size
    found = Permutation(size, "key")(np.arange(start, min(start + count, size)))
    assert found.min() >= 0
    assert found.max() < size
    assert len(set(found.tolist())) == len(found)


@given(
    size=st.integers(1, 500),
    start=st.integers(0, 2000),
    counts=st.lists(st.integers(0, 100), max_size=8),
)
def test_the_order_does_not_depend_on_how_it_is_asked_for(
    size: int, start: int, counts: list[int]
) -> None:
    whole = Cursor(size, 1).indices(start, sum(counts))
    cursor = Cursor(size, 1, position=start)
    parts = [cursor.take(count) for count in counts]
    np.testing.assert_array_equal(np.concatenate([[], *parts]), whole)


@given(batch=st.integers(1, 64), world=st.integers(1, 16))
def test_the_ranks_together_read_the_global_batch(batch: int, world: int) -> None:
    cursor = Cursor(1000, 3, position=970)
    parts = [cursor.share(batch, rank, world) for rank in range(world)]
    np.testing.assert_array_equal(np.concatenate(parts), cursor.indices(970, batch))


def test_the_state_is_small_and_brings_the_order_back() -> None:
    cursor = Cursor(10**12, 2**63, position=10**9, dataset="a" * 64)
    text = json.dumps(cursor.state())
    assert len(text) < 1024
    again = Cursor.from_state(json.loads(text), samples=10**12, dataset="a" * 64)
    np.testing.assert_array_equal(again.take(100), cursor.take(100))
    assert again.position == 10**9 + 100


def test_a_state_of_another_dataset_is_refused() -> None:
    state = Cursor(10, 0, dataset="a" * 64).state()
    with pytest.raises(ConflictError, match="belongs to dataset"):
        Cursor.from_state(state, dataset="b" * 64)
    with pytest.raises(ConflictError, match="10 samples"):
        Cursor.from_state(state, samples=11)
    with pytest.raises(InvalidError, match="format"):
        Cursor.from_state({**state, "format": 9})


def test_the_order_is_frozen() -> None:
    # A checkpoint written today must mean the same order in every later release.
    assert Cursor(10, 0).indices(0, 10).tolist() == FROZEN_SMALL
    assert Cursor(10**9, 5).indices(3, 4).tolist() == FROZEN_LARGE


FROZEN_SMALL = [3, 5, 9, 6, 4, 1, 2, 0, 8, 7]
FROZEN_LARGE = [509760158, 391659909, 273414219, 215719109]


def test_positions_of_any_shape_are_answered() -> None:
    cursor = Cursor(70_000, 4)
    grid = np.arange(60_000, 80_000).reshape(100, 200)
    np.testing.assert_array_equal(cursor.at(grid).ravel(), cursor.at(grid.ravel()))
