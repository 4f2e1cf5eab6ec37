"""When ranks were up and when they made steps, from a job's events."""

from __future__ import annotations

from math import inf

from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.periods import Period, covered, ranks_up, stepping


def event(kind: str, time: float, **details: float) -> RunEvent:
    return RunEvent(kind, "", 1, time, details)


LOST_A_NODE = (
    event(EventKind.ATTEMPT_STARTED, 0),
    event(EventKind.RANKS_STARTED, 10),
    event(EventKind.STEPPING, 31, at=30),
    event(EventKind.RECOVERING, 105, last_at=100),
    event(EventKind.RANKS_STARTED, 110),
    event(EventKind.RECOVERED, 121, at=120),
    event("training-finished", 200),
    event(EventKind.ATTEMPT_ENDED, 210),
)


def test_steps_end_with_the_last_one_and_begin_with_the_first_again() -> None:
    assert stepping(LOST_A_NODE) == (Period(30, 100), Period(120, 200))
    assert ranks_up(LOST_A_NODE) == (Period(10, 105), Period(110, 210))


def test_a_later_attempt_tells_when_the_one_before_it_made_its_last_step() -> None:
    again = (
        *LOST_A_NODE[:3],
        event(EventKind.ATTEMPT_STARTED, 300, last_at=80),
        event(EventKind.RANKS_STARTED, 310),
    )
    assert stepping(again) == (Period(30, 80),)
    assert ranks_up(again) == (Period(10, 300), Period(310, inf))


def test_what_goes_on_has_no_end_and_nothing_is_no_period() -> None:
    assert stepping(LOST_A_NODE[:3]) == (Period(30, inf),)
    assert stepping(()) == ranks_up(()) == ()
    assert stepping(LOST_A_NODE[:2]) == ()


def test_time_in_two_periods_counts_once_and_outside_the_limits_not() -> None:
    periods = [Period(0, 10), Period(5, 15), Period(20, inf)]
    assert covered(each.clipped(2, 25) for each in periods) == 13 + 5
    assert covered(each.clipped(30, 30) for each in periods) == 0
    assert covered([]) == 0
