"""What was used in a period: asked for, held, by whom and for which project."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hpcplat.slurm.scheduler import PastJob
from server.people import usage
from server.people.idle import Watch
from tests.server.fakes import past_job

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def start(number: int, begin: datetime, hours: float, **changes: object) -> PastJob:
    """Return a start of a job with 4 GPUs of 8 CPUs each, and 3 hours to run in."""
    job = replace(
        past_job(number),
        user="alice",
        account="lab",
        nodes=("n1",),
        submitted=begin - HOUR,
        started=begin,
        ended=begin + hours * HOUR,
        allocated={"gres/gpu": 4, "cpu": 32},
        requested={"gres/gpu": 4},
        time_limit=3 * HOUR,
        wckey="",
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def rows(*past: PastJob, price: float | None = None) -> list[tuple[object, ...]]:
    nothing = Watch()
    found = usage.report(
        past, NOON, NOON + 4 * HOUR, {"lab": "nlp"}, price, lambda _: nothing
    )
    return [
        (r.user, r.project, r.jobs, r.gpu_hours_asked, r.gpu_hours, r.price)
        for r in found
    ]


def test_hours_count_inside_the_period_and_what_was_asked_once_a_start() -> None:
    before = start(1, NOON - HOUR, 2)  # began before: half of it is in
    inside = start(2, NOON + HOUR, 1)
    after = start(3, NOON + 5 * HOUR, 1)
    assert rows(before, inside, after) == [("alice", "", 2, 12.0, 8.0, None)]


def test_a_start_that_lost_a_node_asked_once_and_one_that_was_requeued_again() -> None:
    whole = start(1, NOON, 1)
    rest = start(
        1,
        NOON + HOUR,
        1,
        submitted=whole.submitted,
        allocated={"gres/gpu": 2, "cpu": 16},
    )
    again = start(1, NOON + 3 * HOUR, 0.5)
    assert rows(whole, rest) == [("alice", "", 1, 12.0, 6.0, None)]
    assert rows(whole, rest, again) == [("alice", "", 1, 24.0, 8.0, None)]


def test_each_project_has_a_row_of_its_own_and_a_price() -> None:
    speech = start(1, NOON, 1, wckey="speech")
    other = start(2, NOON, 2)
    bobs = start(3, NOON, 1, user="bob", wckey="speech")
    assert rows(speech, other, bobs, price=1.5) == [
        ("alice", "", 1, 12.0, 8.0, 12.0),
        ("alice", "speech", 1, 12.0, 4.0, 6.0),
        ("bob", "speech", 1, 12.0, 4.0, 6.0),
    ]


@pytest.mark.parametrize(
    "changes", [{"started": None}, {"nodes": ()}, {"time_limit": None}]
)
def test_what_never_ran_or_had_no_limit_asked_for_no_hours(
    changes: dict[str, object],
) -> None:
    found = rows(start(1, NOON, 1, **changes))
    assert [row[3] for row in found] == ([0.0] if "time_limit" in changes else [])
