from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.errors import InvalidError
from hpcplat.jobs.array import (
    TaskArray,
    chained,
    chunks,
    parse_array,
    shared_throttle,
)


@pytest.mark.parametrize(
    ("text", "indices", "throttle"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("7", (7,), None),
        ("1,3,5-7%2", (1, 3, 5, 6, 7), 2),
        ("0-10:5", (0, 5, 10), None),
        ("5,1", (1, 5), None),
    ],
)
def test_arrays_are_read(
    text: str, indices: tuple[int, ...], throttle: int | None
) -> None:
    assert parse_array(text) == TaskArray(indices, throttle)


@pytest.mark.parametrize(
    "text",
    ["", "a", "5-1", "0-9%0", "1,1", "0-5,3", "0-9:0", "-1", "1-", "0-9999999", "1;2"],
)
def test_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        parse_array(text)


_indices = st.sets(st.integers(0, 5000), min_size=1, max_size=60)


@given(_indices, st.none() | st.integers(1, 50))
def test_arrays_read_back_from_sbatchs_spelling(
    indices: set[int], throttle: int | None
) -> None:
    array = TaskArray(tuple(sorted(indices)), throttle)
    assert parse_array(str(array)) == array


def test_the_spelling_is_short() -> None:
    assert str(parse_array("0-999:3%5")) == "0-999:3%5"
    assert str(parse_array("1,2,3,9,11,13")) == "1-3,9-13:2"


@given(_indices, st.none() | st.integers(1, 50), st.integers(1, 1500))
def test_chunks_hold_every_task_once_within_slurms_limit(
    indices: set[int], throttle: int | None, size: int
) -> None:
    array = TaskArray(tuple(sorted(indices)), throttle)
    parts = chunks(array, size)
    found = [
        index + part.offset
        for part in parts
        for index in parse_array(part.option).indices
    ]
    assert found == list(array.indices)
    assert all(max(parse_array(part.option).indices) < size for part in parts)
    assert sum(part.tasks for part in parts) == len(indices)


@given(_indices, st.integers(1, 50), st.integers(1, 1500))
def test_never_more_tasks_run_at_once_than_the_throttle(
    indices: set[int], throttle: int, size: int
) -> None:
    parts = chunks(TaskArray(tuple(sorted(indices)), throttle), size)
    limits = [parse_array(part.option).throttle for part in parts]
    waits = chained(len(parts), throttle)
    # Parts that wait for an earlier one never run beside it: count those that don't.
    running = [
        limit or 0 for limit, wait in zip(limits, waits, strict=True) if wait is None
    ]
    assert sum(running) <= throttle
    assert all(limits)


def test_an_array_that_fits_is_left_as_it_is() -> None:
    (part,) = chunks(parse_array("5-1000%7"), 1001)
    assert (part.option, part.offset, part.tasks) == ("5-1000%7", 0, 996)


def test_a_larger_one_goes_in_parts() -> None:
    first, second, third = chunks(parse_array("0-2499%50"), 1001)
    assert (first.option, first.offset) == ("0-1000%21", 0)
    assert (second.option, second.offset) == ("0-1000%20", 1001)
    assert (third.option, third.offset) == ("0-497%9", 2002)


def test_the_throttle_is_shared_out_whole() -> None:
    assert shared_throttle(50, [1001, 1001, 498]) == [21, 20, 9]
    assert shared_throttle(None, [1, 2]) == [None, None]
    assert shared_throttle(2, [5, 5, 5]) == [1, 1, 1]
    assert chained(5, 2) == (None, None, 0, 1, 2)
    assert chained(3, None) == (None, None, None)


def test_a_cluster_without_arrays_says_so() -> None:
    with pytest.raises(InvalidError, match="no job arrays"):
        chunks(parse_array("0"), 0)
