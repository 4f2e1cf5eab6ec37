"""Identifiers sort by time and are found in what Slurm shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.ids import find_key, new_job_id, submission_key

TIMES = st.integers(min_value=0, max_value=2**45 - 1)


@given(TIMES, TIMES)
def test_ids_sort_by_time(one: int, other: int) -> None:
    first, second = sorted((one, other))
    if first != second:
        assert new_job_id(first) < new_job_id(second)


def test_ids_of_one_moment_differ() -> None:
    assert len({new_job_id(1) for _ in range(1000)}) == 1000


@given(TIMES, st.integers(1, 999_999), st.integers(0, 999_999))
def test_a_key_is_found_wherever_it_stands(time: int, number: int, part: int) -> None:
    key = submission_key(new_job_id(time), number, part)
    assert find_key("", f"hpcplat:{key}") == key
    assert find_key(f"my job:{key}", "") == key


def test_other_comments_hold_no_key() -> None:
    assert find_key("", "hpc-", "hpc-short-1-0", "somebody's own words") is None
