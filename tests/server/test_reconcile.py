"""The reconcile loop: rows become what Slurm says, and doubts are settled."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hpcplat.errors import InvalidError
from hpcplat.slurm.scheduler import LiveJob, SubmissionDoubtError, SubmittedJob
from hpcplat.slurm.scheduler import Submission as Script
from hpcplat.slurm.states import BaseState, JobState
from server.database import Database
from server.ids import new_job_id
from server.judgement import Patience
from server.metrics import Metrics
from server.queries import arrivals, events, jobs, people, submissions
from server.queries.jobs import NewJob, Scope
from server.queries.submissions import Work
from server.reconcile import Reconciler, Rhythm
from server.site import Site
from server.states import Sending, State
from server.submission import Pace, Submitter
from server.tables import Attempt, Job, Lease, Submission
from tests.server.fakes import FakeSlurm, past_job, raising

ALL = Scope(everything=True, user_id=0)
NOTHING = timedelta(0)
AT_ONCE = Patience(comeback=NOTHING, accounting=NOTHING, lost=NOTHING, confirm=NOTHING)
PACE = Pace(settles=NOTHING, retry=NOTHING, claim_lasts=NOTHING)


class World:
    """A database, a fake Slurm, and what moves between them."""

    def __init__(self, database: Database, slurm: FakeSlurm, folder: Path) -> None:
        self.database = database
        self.slurm = slurm
        self.folder = folder
        self.patience = AT_ONCE
        self.pace = PACE
        self.begin()

    def begin(self, holder: str = "one") -> Reconciler:
        site = Site(self.slurm)
        metrics = Metrics()
        self.submitter = Submitter(self.database, site, _script, self.pace, metrics)
        self.reconciler = Reconciler(
            self.database, site, holder, self.patience, self.pace, metrics
        )
        return self.reconciler

    def queue(self, offsets: tuple[int, ...] = (0,), tasks: int = 1) -> str:
        now = datetime.now(UTC)
        job_id = new_job_id()
        with self.database.write() as session:
            new = NewJob(
                id=job_id,
                cluster="fake",
                workspace_id=people.ensure_workspace(session, "default", now),
                user_id=people.user_id(session, "root", now),
                name="job",
                kind="command",
                spec={},
                spec_digest="",
                folder=str(self.folder),
                partition="gpu",
                nodes=1,
                gpus=0,
                tasks=tasks,
                offsets=offsets,
            )
            jobs.create(session, [new], now)
        return job_id

    def submit(self) -> tuple[str, int]:
        job_id = self.queue()
        self.submitter.drain()
        return job_id, self.slurm.next_id

    def job(self, job_id: str) -> Job:
        with self.database.read() as session:
            return jobs.find(session, ALL, job_id).job

    def attempts(self, job_id: str) -> list[Attempt]:
        with self.database.read() as session:
            return list(jobs.attempts_of(session, job_id, None))

    def submissions(self, job_id: str) -> list[Submission]:
        with self.database.read() as session:
            return list(jobs.submissions_of(session, job_id))

    def reasons(self, job_id: str) -> list[str]:
        with self.database.read() as session:
            return [event.reason for event in events.of_job(session, job_id)]

    def rounds(self, count: int = 3) -> None:
        for _ in range(count):
            self.reconciler.step()


def _script(work: Work) -> Script:
    lines = ["#!/bin/sh", "#SBATCH --job-name=job", "#SBATCH --comment=hpcplat:"]
    return Script(script="\n".join(lines) + work.key + "\n", folder=work.folder)


@pytest.fixture
def world(database: Database, slurm: FakeSlurm, tmp_path: Path) -> World:
    return World(database, slurm, tmp_path)


def test_a_job_goes_its_way_and_each_change_is_an_event(world: World) -> None:
    job_id, slurm_id = world.submit()
    world.rounds()
    assert world.job(job_id).state == State.PENDING
    world.slurm.run(slurm_id)
    world.rounds()
    assert world.job(job_id).state == State.RUNNING
    world.slurm.end(slurm_id)
    world.rounds()
    job = world.job(job_id)
    assert job.state == State.COMPLETED
    assert job.ended_at is not None
    assert job.exit_code == 0
    with world.database.read() as session:
        rows = events.of_job(session, job_id)
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    states = [row.state for row in rows if row.kind == "state"]
    assert states == [State.RUNNING, State.COMPLETED]
    assert all(row.reason for row in rows)


def test_one_question_a_round_whatever_the_number_of_jobs(world: World) -> None:
    for _ in range(20):
        world.queue()
    world.submitter.drain()
    world.reconciler.step()
    world.slurm.questions.clear()
    world.reconciler.step()
    assert world.slurm.questions.count("jobs") == 1
    assert world.slurm.questions.count("history") == 0


def test_slurm_is_not_asked_when_nothing_lives(world: World) -> None:
    world.reconciler.step()
    world.slurm.questions.clear()
    look = world.reconciler.step()
    assert "jobs" not in world.slurm.questions
    assert not look.busy


def test_an_empty_squeue_is_not_the_end_of_a_job(world: World) -> None:
    world.patience = Patience()
    world.begin()
    job_id, slurm_id = world.submit()
    world.slurm.live.pop(slurm_id)
    world.rounds(5)
    assert world.job(job_id).state == State.PENDING


def test_while_slurm_is_down_nothing_changes_and_that_is_said(world: World) -> None:
    job_id, slurm_id = world.submit()
    world.slurm.run(slurm_id)
    world.rounds()
    world.slurm.is_up = False
    world.rounds()
    assert world.job(job_id).state == State.RUNNING
    assert "does not answer" in world.reconciler.degraded
    world.slurm.is_up = True
    world.rounds()
    assert world.reconciler.degraded == ""


def test_while_accounting_is_down_an_end_is_waited_for(world: World) -> None:
    job_id, slurm_id = world.submit()
    world.slurm.run(slurm_id)
    world.rounds()
    world.slurm.end(slurm_id)
    world.slurm.accounting = False
    world.rounds()
    assert world.job(job_id).state == State.RUNNING
    assert "Accounting does not answer" in world.reconciler.degraded
    world.slurm.accounting = True
    world.rounds()
    assert world.job(job_id).state == State.COMPLETED


def test_a_requeue_makes_a_new_attempt(world: World) -> None:
    job_id, slurm_id = world.submit()
    world.slurm.run(slurm_id)
    world.rounds()
    first = world.slurm.live[slurm_id]
    world.slurm.past.append(
        past_job(
            slurm_id,
            BaseState.NODE_FAIL,
            comment=first.comment,
            submitted=first.submitted,
            started=first.started,
            ended=datetime.now(UTC),
        )
    )
    later = (first.started or datetime.now(UTC)) + timedelta(minutes=3)
    world.slurm.live[slurm_id] = replace(
        first,
        state=JobState(BaseState.PENDING),
        started=None,
        nodes=(),
        reason="BeginTime",
        submitted=later,
        restarts=1,
    )
    world.rounds()
    assert world.job(job_id).state == State.PENDING
    assert world.job(job_id).reason == "BeginTime"
    world.slurm.live[slurm_id] = replace(
        first, started=later, submitted=later, nodes=("n2",), restarts=1
    )
    world.rounds()
    attempts = world.attempts(job_id)
    assert [(a.number, a.state) for a in attempts] == [(1, "NODE_FAIL"), (2, "RUNNING")]
    assert attempts[0].reason == "A node died."
    assert world.job(job_id).attempts == 2
    assert "Attempt 2 runs on n2." in world.reasons(job_id)


def test_a_job_that_slurm_lost_before_its_start_is_sent_anew(world: World) -> None:
    job_id, slurm_id = world.submit()
    world.slurm.live.pop(slurm_id)  # a controller that came back without it
    world.rounds()
    assert world.job(job_id).state == State.QUEUED
    world.submitter.drain()
    rounds = world.submissions(job_id)
    assert [row.round for row in rounds] == [1, 2]
    assert rounds[0].key != rounds[1].key
    assert world.job(job_id).slurm_job_id == world.slurm.next_id
    world.rounds()
    assert world.job(job_id).state == State.PENDING


def test_a_job_that_slurm_lost_while_it_ran_is_not_sent_anew(world: World) -> None:
    job_id, slurm_id = world.submit()
    world.slurm.run(slurm_id)
    world.rounds()
    world.slurm.live.pop(slurm_id)
    world.rounds()
    job = world.job(job_id)
    assert job.state == State.FAILED
    assert "lost" in job.reason
    assert len(world.submissions(job_id)) == 1


def test_an_earlier_round_that_comes_back_is_cancelled(world: World) -> None:
    job_id, slurm_id = world.submit()
    lost = world.slurm.live.pop(slurm_id)
    world.rounds()
    world.submitter.drain()
    world.slurm.live[slurm_id] = lost  # the old state was restored after all
    world.rounds()
    assert world.slurm.cancelled == [str(slurm_id)]
    assert world.job(job_id).state == State.PENDING


def taken_but_doubtful(world: World) -> Callable[[Script], SubmittedJob]:
    def fault(script: Script) -> SubmittedJob:
        world.slurm.take(script)
        raise SubmissionDoubtError("The reply was lost.")

    return fault


def test_a_doubt_is_settled_by_the_key_in_the_queue(world: World) -> None:
    world.slurm.faults.append(taken_but_doubtful(world))
    job_id, slurm_id = world.submit()
    assert world.job(job_id).state == State.SUBMITTING
    world.rounds()
    assert world.job(job_id).slurm_job_id == slurm_id
    assert world.job(job_id).state == State.PENDING
    world.submitter.drain()
    assert len(world.slurm.submitted) == 1


def test_a_doubt_is_settled_by_the_key_in_accounting(world: World) -> None:
    world.slurm.faults.append(taken_but_doubtful(world))
    job_id, slurm_id = world.submit()
    world.slurm.run(slurm_id)
    world.slurm.end(slurm_id)  # quick: it left the queue already
    world.rounds(4)
    assert world.job(job_id).slurm_job_id == slurm_id
    assert world.job(job_id).state == State.COMPLETED
    assert len(world.slurm.submitted) == 1


def test_what_slurm_does_not_know_is_sent_again(world: World) -> None:
    world.slurm.faults.append(raising(SubmissionDoubtError("No reply.")))
    job_id, _ = world.submit()
    world.rounds(3)
    assert world.job(job_id).state == State.QUEUED
    world.submitter.drain()
    world.rounds(1)
    assert world.job(job_id).state == State.PENDING
    assert len(world.slurm.submitted) == 1


def test_while_accounting_is_down_an_old_doubt_waits(world: World) -> None:
    world.slurm.settings["MinJobAge"] = "0 sec"
    world.slurm.faults.append(raising(SubmissionDoubtError("No reply.")))
    world.begin()
    job_id, _ = world.submit()
    world.slurm.accounting = False
    world.rounds(5)
    assert world.job(job_id).state == State.SUBMITTING


def test_without_accounting_an_old_doubt_fails_closed(world: World) -> None:
    world.slurm.settings.update(
        {"MinJobAge": "0 sec", "AccountingStorageType": "accounting_storage/none"}
    )
    world.begin()
    world.slurm.faults.append(raising(SubmissionDoubtError("No reply.")))
    job_id, _ = world.submit()
    world.rounds(5)
    job = world.job(job_id)
    assert job.state == State.FAILED
    assert "no clear answer" in job.reason
    assert world.slurm.submitted == []


def test_a_claim_of_a_service_that_died_is_settled(world: World) -> None:
    job_id = world.queue()
    [_work] = world.submitter.step()  # and then the service is gone
    world.rounds(4)
    world.submitter.drain()
    world.rounds(1)
    assert world.job(job_id).state == State.PENDING
    assert len(world.slurm.submitted) == 1


def test_a_claim_that_may_live_is_left_alone(world: World) -> None:
    world.pace = Pace()
    world.begin()
    job_id = world.queue()
    [_work] = world.submitter.step()
    world.rounds(5)
    [row] = world.submissions(job_id)
    assert row.state == Sending.CLAIMED


def test_a_sent_job_under_fire_of_the_look_is_no_stranger(world: World) -> None:
    # Sent by a worker after the rows were read, and before squeue answered.
    world.submit()
    whole = world.slurm.jobs

    def slow(*, finished: bool = False) -> Sequence[LiveJob]:
        late = world.queue()
        [work] = world.submitter.step()
        world.slurm.take(_script(work))
        assert late
        return whole(finished=finished)

    world.slurm.jobs = slow  # type: ignore[method-assign]
    world.reconciler.step()
    assert world.slurm.cancelled == []


def test_a_twin_is_cancelled_and_the_first_stays(world: World) -> None:
    job_id, slurm_id = world.submit()
    twin = replace(world.slurm.live[slurm_id], job_id=999, address="999")
    world.slurm.live[999] = twin
    world.rounds()
    assert world.slurm.cancelled == ["999"]
    assert world.job(job_id).slurm_job_id == slurm_id


def test_a_number_that_was_misread_is_put_right(world: World) -> None:
    job_id, slurm_id = world.submit()
    record = world.slurm.live.pop(slurm_id)
    world.slurm.live[999] = replace(record, job_id=999, address="999")
    world.patience = replace(AT_ONCE, lost=timedelta(hours=1))
    world.begin()
    world.rounds()
    assert world.slurm.cancelled == []
    assert world.job(job_id).slurm_job_id == 999


def test_somebody_elses_job_under_our_number_is_not_ours(world: World) -> None:
    job_id, slurm_id = world.submit()
    other = replace(world.slurm.live[slurm_id], comment="their own", name="theirs")
    world.slurm.live[slurm_id] = replace(other, state=JobState(BaseState.RUNNING))
    world.patience = replace(AT_ONCE, lost=timedelta(hours=1))
    world.begin()
    world.rounds()
    assert world.job(job_id).state == State.PENDING
    assert world.attempts(job_id) == []


def test_a_job_whose_owner_took_the_key_away_is_still_ours(world: World) -> None:
    job_id, slurm_id = world.submit()
    record = replace(world.slurm.live[slurm_id], comment="my own words")
    world.slurm.live[slurm_id] = replace(record, state=JobState(BaseState.RUNNING))
    world.rounds()
    assert world.job(job_id).state == State.RUNNING


def test_a_wish_to_cancel_is_carried_out_when_slurm_is_back(world: World) -> None:
    job_id, slurm_id = world.submit()
    with world.database.write() as session:
        jobs.locked(session, job_id).cancel_asked = True
    world.rounds()
    assert world.slurm.cancelled == [str(slurm_id)]
    assert world.job(job_id).state == State.CANCELLED


def test_a_job_cancelled_while_it_is_sent_again_never_runs(world: World) -> None:
    job_id, _ = world.submit()
    now = datetime.now(UTC)
    with world.database.write() as session:
        (row,) = jobs.submissions_of(session, job_id)
        row.state = Sending.DOUBTFUL
        jobs.locked(session, job_id).cancel_asked = True
        session.flush()
        submissions.queued_again(session, row.id or 0, "Slurm is busy.", now, now)
    assert world.job(job_id).state == State.CANCELLED
    assert [one.state for one in world.submissions(job_id)] == [Sending.WITHDRAWN]


def test_a_reason_that_slurm_forgets_for_a_moment_is_told_once(world: World) -> None:
    job_id, slurm_id = world.submit()
    for reason in ("Resources", "None", "Resources", "", "Resources"):
        live = world.slurm.live[slurm_id]
        world.slurm.live[slurm_id] = replace(live, reason=reason)
        world.rounds(1)
    assert world.reasons(job_id)[2:] == ["Resources"]
    assert world.job(job_id).reason == "Resources"


def test_a_job_cancelled_while_in_doubt_is_not_sent_again(world: World) -> None:
    world.slurm.faults.append(raising(SubmissionDoubtError("No reply.")))
    job_id, _ = world.submit()
    with world.database.write() as session:
        jobs.locked(session, job_id).cancel_asked = True
    world.rounds(4)
    world.submitter.drain()
    assert world.job(job_id).state == State.CANCELLED
    assert world.slurm.submitted == []


def test_only_the_holder_of_the_lease_looks(world: World) -> None:
    world.submit()
    world.reconciler.step()
    other = world.begin("other")
    assert not other.step().leads
    first = world.begin("one")
    first.step()
    first.give_up()
    assert world.begin("other").step().leads


def test_what_a_service_knew_before_it_was_stopped_is_not_written(
    world: World,
) -> None:
    job_id, slurm_id = world.submit()
    world.slurm.run(slurm_id)
    stopped = world.reconciler
    asks = world.slurm.jobs

    def while_stopped(*, finished: bool = False) -> Sequence[LiveJob]:
        # Another service takes over while this one hangs.
        with world.database.write() as session:
            lease = session.get_one(Lease, "reconcile:fake")
            lease.holder = "other"
        return asks(finished=finished)

    world.slurm.jobs = while_stopped  # type: ignore[method-assign]
    stopped.step()
    assert world.job(job_id).state == State.PENDING


def test_a_final_job_that_is_requeued_in_slurm_is_watched_again(world: World) -> None:
    job_id, slurm_id = world.submit()
    world.slurm.run(slurm_id)
    world.rounds()
    record = world.slurm.live[slurm_id]
    world.slurm.end(slurm_id)
    other, _ = world.submit()  # so that there is something to look at
    world.rounds()
    assert world.job(job_id).state == State.COMPLETED
    world.slurm.live[slurm_id] = replace(
        record, state=JobState(BaseState.PENDING), started=None, nodes=()
    )
    world.rounds()
    assert world.job(job_id).state == State.PENDING
    assert world.job(job_id).ended_at is None
    assert other


def test_the_agents_report_says_why_a_job_failed(world: World) -> None:
    job_id, slurm_id = world.submit()
    world.slurm.run(slurm_id)
    world.rounds()
    event = {
        "kind": "attempt-ended",
        "what": "Rank 3 on n2 ended with exit code 7. Its last line: boom",
        "attempt": 1,
        "time": 0,
        "details": {"code": 7},
    }
    (world.folder / "events.jsonl").write_text(json.dumps(event) + "\nnot json\n")
    world.slurm.end(slurm_id, BaseState.FAILED)
    world.rounds()
    job = world.job(job_id)
    assert job.reason == event["what"]
    assert job.exit_code == 7
    [attempt] = world.attempts(job_id)
    assert attempt.reason == event["what"]


def test_an_array_in_parts_ends_when_all_parts_have(world: World) -> None:
    job_id = world.queue(offsets=(0, 1000), tasks=2)
    world.submitter.drain()
    first, second = sorted(world.slurm.live)
    for slurm_id in (first, second):
        record = world.slurm.live[slurm_id]
        world.slurm.live[slurm_id] = replace(
            record,
            array_job_id=slurm_id,
            array_task_id=5,
            address=f"{slurm_id}_5",
            state=JobState(BaseState.RUNNING),
            started=record.submitted,
            nodes=("n1",),
        )
    world.rounds()
    record = world.slurm.live.pop(first)
    world.slurm.past.append(
        past_job(
            first,
            address=f"{first}_5",
            comment=record.comment,
            submitted=record.submitted,
            started=record.started,
        )
    )
    world.rounds()
    assert world.job(job_id).state == State.RUNNING
    record = world.slurm.live.pop(second)
    world.slurm.past.append(
        past_job(
            second,
            address=f"{second}_5",
            comment=record.comment,
            submitted=record.submitted,
            started=record.started,
        )
    )
    world.rounds()
    assert world.job(job_id).state == State.COMPLETED
    assert [a.task for a in world.attempts(job_id)] == [5, 1005]


def test_a_refused_part_ends_the_job_as_failed(world: World) -> None:
    world.slurm.faults += [world.slurm.take, raising(InvalidError("Too many."))]
    job_id = world.queue(offsets=(0, 1000), tasks=2)
    world.submitter.drain()
    world.rounds(4)
    assert len(world.slurm.cancelled) == 1
    assert world.job(job_id).state == State.FAILED


def test_the_rhythm_is_quick_while_something_moves() -> None:
    rhythm = Rhythm(fastest=1, slowest=5, idle=10)
    assert rhythm.after(5, moved=True, busy=True) == 1
    pause = 1.0
    for _ in range(20):
        pause = rhythm.after(pause, moved=False, busy=True)
    assert pause == 5
    assert rhythm.after(1, moved=False, busy=False) == 10


def test_submissions_are_unchanged_only_if_nobody_moved_them(world: World) -> None:
    world.slurm.faults.append(raising(SubmissionDoubtError("No reply.")))
    world.submit()
    with world.database.read() as session:
        [seen] = submissions.in_hand(session, "fake")
    with world.database.write() as session:
        assert submissions.unchanged(session, seen)
        arrivals.note(session, {seen.submission_id: 5}, datetime.now(UTC))
        session.flush()
        assert not submissions.unchanged(session, seen)


def test_a_start_is_asked_for_once_however_often_it_is_hurried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start that is asked for puts Slurm's own off by two seconds."""
    asked: list[str] = []
    monkeypatch.setattr(
        world.slurm, "start_now", lambda address, _: asked.append(address)
    )
    _, slurm_id = world.submit()
    live = world.slurm.live
    live[slurm_id] = replace(live[slurm_id], reason="BeginTime", restarts=1)
    for _ in range(4):  # as Recovery does, round after round
        world.reconciler.hurry(slurm_id)
        world.rounds(1)
    assert asked == [str(slurm_id)]
