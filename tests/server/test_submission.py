"""Exactly-once submission, step by step, on both databases."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from hpcplat.errors import HpcplatError, InvalidError, UnavailableError
from hpcplat.jobs import spec_of
from hpcplat.jobs.array import ArrayChunk, TaskArray, chunks
from hpcplat.runfiles import RunFile
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy
from hpcplat.slurm.scheduler import Submission as Script
from hpcplat.slurm.scheduler import SubmissionDoubtError, SubmittedJob
from server import preparation, submission
from server.database import Database
from server.ids import new_job_id
from server.metrics import Metrics
from server.preparation import NotYetError
from server.queries import arrivals, events, jobs, people, submissions
from server.queries.jobs import NewJob, Scope
from server.queries.submissions import Work
from server.service import Service
from server.site import Site
from server.states import Sending, State
from server.submission import (
    BATCH,
    DATABASE_PAUSE,
    Doubtful,
    Outcome,
    Pace,
    Refused,
    Submitter,
    Taken,
    Unsent,
    Waiters,
)
from server.tables import Job, Submission
from tests.server.fakes import FakeSlurm, raising

ALL = Scope(everything=True, user_id=0)


def script(work: Work) -> Script:
    text = f"#!/bin/sh\n#SBATCH --comment=hpcplat:{work.key}\n"
    return Script(script=text, folder="/tmp")


def queue(
    database: Database,
    count: int = 1,
    offsets: tuple[int, ...] = (0,),
    folder: str = "/nowhere",
) -> list[str]:
    now = datetime.now(UTC)
    with database.write() as session:
        user = people.user_id(session, "alice", now)
        workspace = people.ensure_workspace(session, "default", now)
        new = [
            NewJob(
                id=new_job_id(),
                cluster="fake",
                workspace_id=workspace,
                user_id=user,
                name="job",
                kind="command",
                spec={},
                spec_digest="",
                folder=folder,
                partition="gpu",
                nodes=1,
                gpus=0,
                tasks=1,
                offsets=offsets,
            )
            for _ in range(count)
        ]
        jobs.create(session, new, now)
    return [one.id for one in new]


def job_of(database: Database, job_id: str) -> Job:
    with database.read() as session:
        return jobs.find(session, ALL, job_id).job


def submission_of(database: Database, job_id: str) -> Submission:
    with database.read() as session:
        return jobs.submissions_of(session, job_id)[-1]


@pytest.fixture
def submitter(database: Database, slurm: FakeSlurm) -> Submitter:
    return Submitter(database, Site(slurm), script, Pace(), Metrics())


def test_a_job_is_sent_once_and_its_number_noted(
    database: Database, submitter: Submitter, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)
    submitter.drain()
    submitter.drain()
    assert len(slurm.submitted) == 1
    job = job_of(database, job_id)
    assert job.state == State.PENDING
    assert job.slurm_job_id == slurm.next_id


def test_the_row_is_claimed_before_sbatch_runs(
    database: Database, submitter: Submitter, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)
    seen: list[str] = []

    def look(asked: Script) -> SubmittedJob:
        seen.append(submission_of(database, job_id).state)
        return slurm.take(asked)

    slurm.faults.append(look)
    submitter.drain()
    assert seen == [Sending.CLAIMED]


def test_two_services_never_claim_the_same_row(database: Database) -> None:
    queue(database, 2)
    now = datetime.now(UTC)
    claimed = []
    for _ in range(3):
        with database.write() as session:
            claimed.append(submissions.claim(session, "fake", now))
    [first], [second], third = claimed
    assert first.submission_id != second.submission_id
    assert first.claim != second.claim
    assert third == []


def test_what_slurm_refuses_fails_with_its_words(
    database: Database, submitter: Submitter, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)
    slurm.faults.append(raising(InvalidError("Invalid partition.", "Choose another.")))
    submitter.drain()
    job = job_of(database, job_id)
    assert job.state == State.FAILED
    assert job.reason == "Invalid partition. Choose another."
    assert submission_of(database, job_id).state == Sending.REFUSED


@pytest.mark.parametrize("error", [InvalidError, SubmissionDoubtError])
def test_words_that_no_database_keeps_are_no_reason_to_try_again(
    database: Database,
    submitter: Submitter,
    slurm: FakeSlurm,
    error: Callable[[str], HpcplatError],
) -> None:
    [job_id] = queue(database)
    slurm.faults.append(raising(error("no\0pe\ud800")))
    submitter.drain()
    assert "no pe " in job_of(database, job_id).reason
    assert submission_of(database, job_id).state != Sending.CLAIMED


def test_a_doubt_is_never_sent_again_by_itself(
    database: Database, submitter: Submitter, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)
    slurm.faults.append(raising(SubmissionDoubtError("sbatch did not answer.")))
    for _ in range(3):
        submitter.drain()
    assert slurm.submitted == []
    assert submission_of(database, job_id).state == Sending.DOUBTFUL
    assert job_of(database, job_id).state == State.SUBMITTING


def test_what_surely_did_not_arrive_is_tried_again_later(
    database: Database, submitter: Submitter, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)
    slurm.faults.append(raising(UnavailableError("Connection refused.")))
    submitter.drain()
    row = submission_of(database, job_id)
    assert row.state == Sending.QUEUED
    assert row.not_before is not None
    assert row.not_before > datetime.now(UTC)
    assert slurm.submitted == []


def test_a_bug_in_sbatchs_adapter_is_a_doubt(
    database: Database, submitter: Submitter, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)

    def broken(_script: Script) -> SubmittedJob:
        raise RuntimeError

    slurm.faults.append(broken)
    submitter.drain()
    assert submission_of(database, job_id).state == Sending.DOUBTFUL


def test_a_worker_that_was_held_up_does_not_send(
    database: Database, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)
    late = Pace(start_within=timedelta(0))
    Submitter(database, Site(slurm), script, late, Metrics()).drain()
    assert slurm.submitted == []
    assert submission_of(database, job_id).state == Sending.QUEUED


def test_a_job_that_waits_for_another_is_not_refused(
    database: Database, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)

    def not_yet(_work: Work) -> Script:
        raise NotYetError("It waits for job x to be submitted.")

    Submitter(database, Site(slurm), not_yet, Pace(), Metrics()).drain()
    assert submission_of(database, job_id).state == Sending.QUEUED
    assert "waits for job x" in job_of(database, job_id).reason


@pytest.mark.parametrize("outcome", [Refused("no"), Unsent("no"), Doubtful("?")])
def test_a_claim_that_was_taken_over_is_left_alone(
    database: Database, submitter: Submitter, outcome: Refused | Unsent | Doubtful
) -> None:
    [job_id] = queue(database)
    [work] = submitter.step()
    with database.write() as session:
        arrivals.note(session, {work.submission_id: 55}, datetime.now(UTC))
    submitter.step([(work, outcome)])
    assert submission_of(database, job_id).slurm_job_id == 55
    assert job_of(database, job_id).state == State.PENDING


def test_a_second_job_for_the_same_key_is_cancelled(
    database: Database, submitter: Submitter, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database)
    [work] = submitter.step()
    with database.write() as session:
        arrivals.note(session, {work.submission_id: 55}, datetime.now(UTC))
    submitter.step([(work, Taken(56))])
    assert slurm.cancelled == ["56"]
    assert submission_of(database, job_id).slurm_job_id == 55


def test_parts_that_arrive_together_are_each_told(
    database: Database, submitter: Submitter
) -> None:
    [job_id] = queue(database, offsets=(0, 100))
    works = submitter.step(most=4)
    submitter.step([(work, Taken(70 + work.part)) for work in works], most=0)
    with database.read() as session:
        told = events.of_job(session, job_id)
        ids = [row.slurm_job_id for row in jobs.submissions_of(session, job_id)]
    assert ids == [70, 71]
    assert [event.number for event in told] == [1, 2, 3]
    assert job_of(database, job_id).events == 3
    assert job_of(database, job_id).state == State.PENDING


def test_after_a_second_try_the_run_folder_says_which_job_is_the_one(
    database: Database, submitter: Submitter, slurm: FakeSlurm, tmp_path: Path
) -> None:
    [first, second] = queue(database, 2, folder=str(tmp_path / "run"))
    slurm.faults.append(raising(UnavailableError("Connection refused.")))
    submitter.pace = Pace(retry=timedelta(0))
    submitter.drain()
    submitter.drain()
    chosen = sorted((tmp_path / "run").glob("chosen-*"))
    assert [path.name for path in chosen] == [f"chosen-hpc-{first}-1-0"]
    row = submission_of(database, first)
    assert chosen[0].read_text() == f"{row.slurm_job_id}\n"
    assert job_of(database, second).state == State.PENDING  # its first try: no file


def test_which_job_is_the_one_is_written_in_the_sites_way(
    database: Database, slurm: FakeSlurm, tmp_path: Path
) -> None:
    [job_id] = queue(database)
    written: list[str] = []

    def fill(_: RunFolder, files: Sequence[RunFile], __: str | None) -> None:
        written.extend(file.path.name for file in files)

    theirs = Service(database, slurm, runs=str(tmp_path), fill=fill)
    (work,) = theirs.submitter.step()
    theirs.submitter.choose(work, 7)
    assert written == [f"chosen-hpc-{job_id}-1-0"]


def test_a_refused_part_cancels_the_others(
    database: Database, submitter: Submitter, slurm: FakeSlurm
) -> None:
    [job_id] = queue(database, offsets=(0, 1000, 2000))
    slurm.faults += [slurm.take, raising(InvalidError("Too many."))]
    submitter.drain()
    job = job_of(database, job_id)
    assert job.cancel_asked  # the reconcile loop cancels the parts that Slurm has
    assert job.reason == "Too many."
    with database.read() as session:
        states = [row.state for row in jobs.submissions_of(session, job_id)]
    assert states == [Sending.SENT, Sending.REFUSED, Sending.SENT]


def test_pauses_grow_and_stay_bounded() -> None:
    pace = Pace()
    pauses = [pace.pause(tries) for tries in range(1, 40)]
    assert pauses == sorted(pauses)
    assert pauses[0] == pace.retry
    assert pauses[-1] == pace.longest_retry


def test_threads_send_all_and_end_when_told(
    database: Database, slurm: FakeSlurm
) -> None:
    submitter = Submitter(database, Site(slurm), script, Pace(), Metrics())
    submitter.start(workers=3)
    ids = queue(database, 30)
    submitter.wake()
    deadline = time.monotonic() + 30
    while len(slurm.submitted) < 30 and time.monotonic() < deadline:
        time.sleep(0.01)
    submitter.stop()
    assert {job_of(database, job_id).state for job_id in ids} == {State.PENDING}
    assert len(slurm.submitted) == 30


def test_an_outcome_that_can_not_be_noted_ends_no_worker(
    database: Database,
    submitter: Submitter,
    slurm: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = queue(database, 3)
    step = submitter._noted_and_claimed

    def fail(
        cluster: str, done: Sequence[tuple[Work, Outcome]], most: int
    ) -> list[Work]:
        if any(work.job_id == ids[1] for work, _ in done):
            raise ValueError("a bug that this row meets")
        return step(cluster, done, most)

    monkeypatch.setattr(submitter, "_noted_and_claimed", fail)
    monkeypatch.setattr(submission, "DATABASE_PAUSE", 0.01)
    submitter.start(workers=1)
    await_that(lambda: job_of(database, ids[2]).state == State.PENDING)
    [last] = queue(database)
    submitter.wake()
    await_that(lambda: job_of(database, last).state == State.PENDING)
    submitter.stop()
    assert submitter.hands.are_done
    assert submission_of(database, ids[1]).state == Sending.CLAIMED  # to be settled
    assert len(slurm.submitted) == 4


def test_an_outage_of_the_database_loses_no_outcome(
    database: Database, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job_id] = queue(database)
    step = submitter._noted_and_claimed
    faults = [OperationalError("x", {}, OSError("gone")) for _ in range(3)]

    def fail(
        cluster: str, done: Sequence[tuple[Work, Outcome]], most: int
    ) -> list[Work]:
        if done and faults:
            raise faults.pop()
        return step(cluster, done, most)

    monkeypatch.setattr(submitter, "_noted_and_claimed", fail)
    monkeypatch.setattr(submission, "DATABASE_PAUSE", 0.01)
    submitter.start(workers=1)
    await_that(lambda: job_of(database, job_id).state == State.PENDING)
    submitter.stop()
    assert faults == []


def test_no_room_is_kept_while_slurm_is_asked_for_its_name(
    submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the end of a service whose Slurm is away would wait for its answer."""
    asked, answered = threading.Event(), threading.Event()

    def answer() -> Mapping[str, str]:
        asked.set()
        assert answered.wait(30)
        raise UnavailableError("Slurm is away.")

    monkeypatch.setattr(submitter.site.scheduler, "config", answer)
    submitter.start(workers=1)
    assert asked.wait(30)
    with submitter.hands.promising(1000) as promise:
        assert promise.room == submission.BATCH
    submitter.hands.close(patience=0)
    answered.set()
    assert submitter.hands.are_done


def test_a_worker_outlives_a_bug(
    database: Database, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = submitter.hands.rest
    faults = [RuntimeError("a bug")]

    def fail(seconds: float) -> tuple[list[Work], bool]:
        if faults:
            raise faults.pop()
        return rest(seconds)

    monkeypatch.setattr(submitter.hands, "rest", fail)
    monkeypatch.setattr(submission, "DATABASE_PAUSE", 0.01)
    submitter.start(workers=1)
    await_that(lambda: not faults)
    [job_id] = queue(database)
    submitter.wake()
    await_that(lambda: job_of(database, job_id).state == State.PENDING)
    submitter.stop()


def test_what_follows_an_outcome_costs_no_claim(
    database: Database, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(database, 2)
    [first] = submitter.step()

    def fail(_job_ids: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(submitter.waiters, "tell", fail)
    [second] = submitter.step([(first, Taken(5))])
    assert second.job_id != first.job_id
    assert job_of(database, first.job_id).slurm_job_id == 5


def test_who_waits_in_a_closed_loop_keeps_nobody_from_being_told() -> None:
    waiters, told = Waiters(), threading.Event()
    loop = asyncio.new_event_loop()
    loop.close()
    waiters.add("j", lambda: loop.call_soon_threadsafe(told.clear))
    waiters.add("j", told.set)
    waiters.tell(["j"])
    assert told.is_set()


def test_workers_send_what_a_request_claims_while_the_service_ends(
    database: Database, submitter: Submitter
) -> None:
    submitter.start(workers=1)
    time.sleep(0.1)  # it has found nothing, and rests
    with submitter.hands.promising(1) as promise:
        ending = threading.Thread(target=submitter.stop)
        ending.start()
        while submitter.hands.are_open:
            time.sleep(0.001)
        time.sleep(0.1)
        [job_id] = queue(database)
        with database.write() as session:
            promise.works = submissions.claim(session, "fake", datetime.now(UTC))
    ending.join()
    assert job_of(database, job_id).state == State.PENDING


def test_workers_claim_no_more_than_there_is_room_for(
    database: Database, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: list[int] = []
    claim = submissions.claim

    def counted(session: Session, cluster: str, now: datetime, most: int) -> list[Work]:
        claims.append(most)
        return claim(session, cluster, now, most)

    submitter.hands.open(most=BATCH)
    with submitter.hands.promising(BATCH - 1):
        ids = queue(database, 3)
        monkeypatch.setattr(submissions, "claim", counted)
        submitter.start(workers=1)
        await_that(
            lambda: all(job_of(database, one).state == State.PENDING for one in ids)
        )
        assert set(claims) == {1}
    submitter.stop()


@pytest.mark.slow
def test_without_slurm_the_threads_say_so_once_and_work_when_it_is_there(
    database: Database, slurm: FakeSlurm, caplog: pytest.LogCaptureFixture
) -> None:
    slurm.is_up = False
    [job_id] = queue(database)
    submitter = Submitter(database, Site(slurm), script, Pace(), Metrics())
    submitter.start(workers=2)
    await_that(lambda: "nothing can be submitted" in caplog.text)
    time.sleep(2 * DATABASE_PAUSE)
    slurm.is_up = True
    await_that(lambda: job_of(database, job_id).state == State.PENDING)
    submitter.stop()
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is None


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_large_array_is_divided_once_for_all_its_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    divided: list[int] = []

    def counted(array: TaskArray, size: int) -> tuple[ArrayChunk, ...]:
        divided.append(size)
        return chunks(array, size)

    monkeypatch.setattr(preparation, "chunks", counted)
    spec = spec_of({"name": "n", "command": "x", "array": "0-4999%2"})
    policy = SitePolicy(max_array_size=1001)
    parts = preparation.array_chunks(spec, policy.max_array_size)
    waits = [preparation.part_before(n, spec, policy) for n in range(len(parts))]
    assert waits == [None, None, 0, 1, 2]
    assert divided == [1001]
