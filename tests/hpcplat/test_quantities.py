"""Durations and memory in Slurm's spelling: right values, round trips, refusals."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.errors import InvalidError
from hpcplat.quantities import (
    LONGEST,
    counted,
    format_duration,
    format_memory,
    parse_duration,
    parse_limit,
    parse_memory,
    spoken_size,
)

durations = st.integers(0, LONGEST // timedelta(seconds=1)).map(
    lambda seconds: timedelta(seconds=seconds)
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("30", 1800),
        ("30:15", 1815),
        ("90:00", 5400),
        ("0:00", 0),
        ("2:30:15", 9015),
        ("1-2", 93600),
        ("1-2:30", 95400),
        ("1-02:03:04", 93784),
        ("365-00:00:00", 31536000),
        (" 10 ", 600),
    ],
)
def test_every_spelling_of_a_duration(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "UNLIMITED",
        "-5",
        "1h",
        "1:2:3:4",
        "1-",
        "-1:00",
        "1.5",
        "1-2-3",
        "٣٠",
        "30\n15",
        "1 0",
        "9999999999",
        "9" * 400,
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_duration(text)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["UNLIMITED", "unlimited", "INVALID", "NOT_SET", "Partition_Limit", "N/A", ""],
)
def test_words_for_no_limit(text: str) -> None:
    assert parse_limit(text) is None


def test_a_limit_that_is_a_duration() -> None:
    assert parse_limit("1:00") == timedelta(minutes=1)
    with pytest.raises(InvalidError):
        parse_limit("soon")


@given(durations)
def test_a_duration_survives_the_round_trip(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text(max_size=40))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert parse_duration(text) >= timedelta(0)
    except InvalidError as error:
        assert error.remedy  # noqa: PT017  (either way out is right)


def test_how_a_duration_is_written() -> None:
    assert format_duration(timedelta(0)) == "00:00:00"
    assert format_duration(timedelta(days=1, hours=2, minutes=3, seconds=4)) == (
        "1-02:03:04"
    )
    assert format_duration(timedelta(seconds=59.2)) == "00:01:00"


@pytest.mark.parametrize(
    "duration", [timedelta(seconds=-1), LONGEST + timedelta(seconds=1), timedelta.max]
)
def test_a_duration_that_slurm_cannot_count(duration: timedelta) -> None:
    with pytest.raises(InvalidError):
        format_duration(duration)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("0", 0),
        ("4000", 4000),
        ("4000M", 4000),
        ("64G", 65536),
        ("64g", 65536),
        ("1.50T", 1572864),
        ("1K", 1),
        ("2049K", 3),
        ("1P", 1024**3),
    ],
)
def test_every_spelling_of_memory(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize(
    "text", ["", "G", "64GB", "64 G", "-1G", "1e3", "1.G", "٤G", "64G\n8G", "9" * 99]
)
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_memory(text)
    assert caught.value.remedy


@given(st.integers(0, 2**50))
def test_memory_survives_the_round_trip(mib: int) -> None:
    assert parse_memory(format_memory(mib)) == mib


def test_how_memory_is_written() -> None:
    assert format_memory(0) == "0M"
    assert format_memory(4000) == "4000M"
    assert format_memory(65536) == "64G"
    assert format_memory(1024**4) == "1024P"
    with pytest.raises(InvalidError):
        format_memory(-1)


def test_amounts_as_people_read_them() -> None:
    assert [counted(n, "rank") for n in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]
    sizes = (0, 99, 1234, 99_999, 205_062, 11_000_000, 2 * 10**11, 10**13)
    assert [spoken_size(size) for size in sizes] == [
        *("0 B", "99 B", "1.2 kB", "100.0 kB", "0.2 MB", "11.0 MB", "0.2 TB"),
        "10.0 TB",
    ]
