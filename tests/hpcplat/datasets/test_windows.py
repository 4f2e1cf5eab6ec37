from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcplat.datasets import TokenWindows
from hpcplat.datasets.version import DatasetVersion
from hpcplat.errors import InvalidError

Make = Callable[..., DatasetVersion]


DOCUMENTS = [3, 1, 0, 500, 7, 2, 64, 1, 1, 20_000]


@pytest.fixture(params=["none", "zstd"])
def version(make_version: Make, request: pytest.FixtureRequest) -> DatasetVersion:
    total = sum(DOCUMENTS)
    return make_version(
        {
            "tokens": np.arange(total, dtype=np.uint32),
            "documents": np.cumsum([0, *DOCUMENTS]).astype(np.uint64),
        },
        how=request.param,
        vocabulary_size=total,
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(length=st.integers(1, 700), data=st.data())
def test_a_window_and_its_borders(
    version: DatasetVersion, length: int, data: st.DataObject
) -> None:
    windows = TokenWindows(version.split("train"), length)
    assert len(windows) == (sum(DOCUMENTS) - 1) // length
    indices = data.draw(st.lists(st.integers(0, len(windows) - 1), max_size=8))
    places = np.arange(length + 1)
    borders = set(np.cumsum(DOCUMENTS).tolist())
    rows, resets = windows.rows(indices), windows.resets(indices)
    segments, positions = windows.segments(indices), windows.positions(indices)
    for row, index in enumerate(indices):
        stream = places + index * length
        np.testing.assert_array_equal(rows[row], stream)
        expected = np.array([p > 0 and int(stream[p]) in borders for p in places])
        np.testing.assert_array_equal(resets[row], expected)
        np.testing.assert_array_equal(segments[row], np.cumsum(expected))
        begins = [max([0, *np.flatnonzero(expected[: p + 1])]) for p in places]
        np.testing.assert_array_equal(positions[row], places - begins)
    np.testing.assert_array_equal(windows.loss_mask(indices), ~resets[:, 1:])


def test_the_windows_together_are_the_stream(version: DatasetVersion) -> None:
    windows = TokenWindows(version.split("train"), 100)
    rows = windows.rows(np.arange(len(windows)))
    inputs, targets = rows[:, :-1].ravel(), rows[:, 1:].ravel()
    np.testing.assert_array_equal(inputs, np.arange(len(inputs)))
    np.testing.assert_array_equal(targets, inputs + 1)


@pytest.mark.parametrize("index", [-1, 10**6])
def test_windows_outside_are_refused(version: DatasetVersion, index: int) -> None:
    with pytest.raises(InvalidError, match="Window"):
        TokenWindows(version.split("train"), 100).rows([index])


def test_a_stream_shorter_than_a_window_has_none(version: DatasetVersion) -> None:
    assert len(TokenWindows(version.split("train"), 10**6)) == 0
