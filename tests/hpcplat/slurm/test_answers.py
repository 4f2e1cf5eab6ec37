"""Cutting answers into rows: whatever the fields hold, whole or not at all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.slurm.answers import (
    UnreadableError,
    names,
    new_separator,
    parse_count,
    parse_moment,
    parse_number,
    parse_time,
    rows,
)

SEPARATOR = "\x1fabc"
fields = st.text(max_size=20).filter(lambda text: SEPARATOR not in text)


def printed(table: list[list[str]]) -> str:
    lines = ("".join(f"{field}{SEPARATOR}" for field in row) for row in table)
    return "".join(f"{line}\n" for line in lines)


@given(st.lists(st.lists(fields, min_size=3, max_size=3), max_size=5))
def test_rows_come_back_whatever_they_hold(table: list[list[str]]) -> None:
    assert list(rows(printed(table), SEPARATOR, 3)) == table


@given(
    st.lists(st.lists(fields, min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(1, 200),
)
def test_a_cut_answer_is_never_read_as_whole(
    table: list[list[str]], missing: int
) -> None:
    whole = printed(table)
    cut = whole[: max(0, len(whole) - 1 - missing)]
    if not cut:
        return
    try:
        found = list(rows(cut, SEPARATOR, 3))
    except UnreadableError:
        return
    assert found == table[: len(found)]  # only ever cut between two rows


@pytest.mark.parametrize(
    "text",
    [
        "noise",
        "banner\na\x1fabcb\x1fabcc\x1fabc\nx",
        "a\x1fabcb\x1fabc\n",
        "a\x1fabcb\x1fabcc\x1fabcd\x1fabc\n",
        "a\x1fabcb\x1fabcc\x1fabca\x1fabcb\x1fabcc\x1fabc\n",
    ],
)
def test_noise_makes_an_answer_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        list(rows(text, SEPARATOR, 3))
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


def test_no_answer_is_no_rows() -> None:
    assert list(rows("", SEPARATOR, 3)) == []
    assert list(rows("\n", SEPARATOR, 3)) == []


def test_a_separator_can_be_told_from_a_width_and_not_guessed() -> None:
    drawn = {new_separator() for _ in range(100)}
    assert len(drawn) == 100
    assert all(each[0] == "\x1f" for each in drawn)
    assert not any(set(each) & set(",:%\n") for each in drawn)


def test_times() -> None:
    assert parse_time("2026-11-30T03:31:24") == datetime(
        2026, 11, 30, 3, 31, 24, tzinfo=UTC
    )
    assert parse_time("Unknown") is None
    assert parse_time("N/A") is None
    for text in ("2026-11-30", "03:31:24", "Tomorr 03:31", "2026-11-30T03:31:24Z"):
        with pytest.raises(UnreadableError):
            parse_time(text)
    with pytest.raises(UnreadableError, match="where a time must"):
        parse_moment("Unknown")


def test_numbers() -> None:
    assert parse_number("12") == 12
    assert parse_number("UNLIMITED") is None
    for text in ("-1", "1.5", "1K", "twelve", "٣"):
        with pytest.raises(UnreadableError):
            parse_number(text)
    with pytest.raises(UnreadableError, match="where a number must"):
        parse_count("N/A")


def test_names() -> None:
    assert names("a,b") == ("a", "b")
    assert names("(null)") == ()
    assert names("") == ()
