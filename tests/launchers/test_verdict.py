from __future__ import annotations

from pathlib import Path

import pytest

from launchers.messages import Ended
from launchers.verdict import (
    failure,
    first_failure,
    how_it_ended,
    missing_outputs,
)


def test_the_first_failure_is_the_earliest_that_nobody_asked_for() -> None:
    ends = [
        Ended(0, 0, 143, 1.0, stopped=True),
        Ended(0, 1, 1, 3.0),
        Ended(0, 2, 0, 0.5),
        Ended(0, 3, 7, 2.0),
    ]
    assert first_failure(ends) == ends[3]
    assert first_failure(ends[::2]) is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "ended with exit code 1."),
        (127, "ended with exit code 127."),
        (139, "was ended by SIGSEGV."),
        (137, "was ended by SIGKILL (the kernel does so when memory is short)."),
        (255, "ended with exit code 255."),
    ],
)
def test_codes_are_said_in_words(code: int, words: str) -> None:
    assert how_it_ended(code) == words


def test_a_reason_is_one_line_with_the_last_words() -> None:
    verdict = failure(Ended(0, 3, 1, 1.0, tail=("Traceback", " ValueError: no ")), "n2")
    assert verdict.reason == (
        "Rank 3 on n2 ended with exit code 1. Its last line: ValueError: no"
    )
    assert (verdict.code, verdict.rank, verdict.node) == (1, 3, "n2")
    assert verdict.tail == ("Traceback", " ValueError: no ")


def test_a_rank_that_never_started_says_why() -> None:
    end = Ended(0, 0, 127, 1.0, problem="foo was not found.")
    assert (
        failure(end, "n1").reason == "Rank 0 on n1 could not start: foo was not found."
    )


def test_outputs_are_looked_for_as_declared(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a[1].pt").touch()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "b.csv").touch()
    there = ["out", "out/*.pt", "out/a[1].pt", "**/*.csv", f"{tmp_path}/out/*.pt"]
    missing = ["no", "out/*.csv", "/no/such/*", "out/a[1].txt"]
    assert missing_outputs([*there, *missing], tmp_path) == tuple(missing)
