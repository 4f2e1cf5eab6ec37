"""When a requeued job is started, so that no node refuses it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.states import BaseState
from server.hurrying import AGAIN, CLOSE, PATIENCE, Hurrying
from tests.server.fakes import live_job

START = datetime(2026, 1, 1, tzinfo=UTC)
RUNS = live_job(7, BaseState.RUNNING)
WAITS = live_job(7, reason="BeginTime", restarts=1)


def due(hurrying: Hurrying, record: LiveJob, seconds: float) -> list[tuple[str, int]]:
    return hurrying.due([record], START + timedelta(seconds=seconds))


def test_a_job_that_was_just_killed_waits_for_two_seconds() -> None:
    hurrying = Hurrying()
    hurrying.hurry(7, START)
    assert due(hurrying, WAITS, 0) == [("7", 2)]
    assert due(hurrying, WAITS, 1) == []
    assert due(hurrying, WAITS, AGAIN.total_seconds()) == [("7", 0)]


def test_a_job_that_was_long_in_completing_starts_at_once() -> None:
    hurrying = Hurrying()
    hurrying.hurry(7, START)
    assert due(hurrying, RUNS, -0.1) == []  # was asked before the kill
    assert due(hurrying, WAITS, 0.9) == [("7", 2)]
    hurrying = Hurrying()
    hurrying.hurry(7, START)
    assert due(hurrying, WAITS, 2.5) == [("7", 0)]


def test_a_job_that_ran_again_waits_again() -> None:
    hurrying = Hurrying()
    hurrying.hurry(7, START)
    assert due(hurrying, WAITS, 3) == [("7", 0)]
    assert due(hurrying, RUNS, 5) == []
    assert due(hurrying, WAITS, 20) == [("7", 2)]


def test_slurm_is_asked_often_only_while_a_job_is_about_to_come_back() -> None:
    hurrying = Hurrying()
    assert not hurrying.is_close(START)
    hurrying.hurry(7, START)
    assert hurrying.is_close(START)
    assert not hurrying.is_close(START + CLOSE)
    due(hurrying, RUNS, 5)
    assert not hurrying.is_close(START + timedelta(seconds=5))


def test_a_job_that_nobody_hurries_waits_as_slurm_has_it() -> None:
    hurrying = Hurrying()
    assert due(hurrying, WAITS, 0) == []
    hurrying.hurry(7, START)
    assert due(hurrying, WAITS, PATIENCE.total_seconds() + 1) == []
