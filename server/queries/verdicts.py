"""Verdicts: what was judged of submissions becomes rows and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlmodel import Session, col, select

from hpcplat.slurm.reasons import in_words
from server.judgement import Start, Verdict, combined
from server.queries import events
from server.queries.jobs import add_submissions, hold_jobs, locked
from server.states import FINAL, Sending, State
from server.tables import Attempt, Job, Submission

MOST_ROUNDS = 3  # submissions anew of a job that Slurm lost
_PARTS = "held parts"


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict on a submission, and since when squeue has not shown it."""

    submission_id: int
    job_id: str
    verdict: Verdict
    missed_at: datetime | None


def store_all(session: Session, batch: Sequence[Judged], now: datetime) -> None:
    """Write verdicts; their rows are read, and written, by a few statements in all."""
    job_ids = list({judged.job_id for judged in batch})
    hold_jobs(session, job_ids)
    held: dict[str, list[Submission]] = {job_id: [] for job_id in job_ids}
    rows = session.exec(select(Submission).where(col(Submission.job_id).in_(job_ids)))
    for row in rows:
        held[row.job_id].append(row)
    session.info[_PARTS] = held
    for judged in batch:
        store(session, judged, now)


def store(session: Session, judged: Judged, now: datetime) -> Job:
    """Write a verdict: the submission, its attempts, the job, and events."""
    job = locked(session, judged.job_id)
    submission = session.get_one(Submission, judged.submission_id)
    verdict = judged.verdict
    submission.missed_at = judged.missed_at
    submission.seen = verdict.word or submission.seen
    new = _store_starts(session, job, submission, verdict.starts)
    if verdict.state is None:
        return job
    if verdict.is_lost and _send_anew(session, job, submission, now):
        return job
    submission.result = verdict.state
    submission.result_reason = verdict.reason
    submission.exit_code = verdict.exit_code
    submission.is_over = verdict.is_over
    whole = combined(_parts(session, job))
    if whole.state is not None:
        _store_state(session, job, whole, new, now)
    return job


def _send_anew(
    session: Session, job: Job, submission: Submission, now: datetime
) -> bool:
    """Queue a job again that Slurm lost before it ever started.

    What its user's own sbatch submitted (kind ``sbatch``) only its user can send again.
    """
    if job.kind == "sbatch":
        return False
    started = session.exec(
        select(Attempt.id).where(col(Attempt.submission_id) == submission.id).limit(1)
    ).one_or_none()
    if started or job.cancel_asked or submission.round >= MOST_ROUNDS or job.tasks > 1:
        return False
    submission.is_over = True
    job.state = State.QUEUED
    job.reason = "Slurm lost the job before it started; it is submitted again."
    add_submissions(session, job, submission.round + 1, (0,))
    session.info.get(_PARTS, {}).pop(job.id, None)
    events.add(session, job, "lost", job.reason, now)
    return True


def _parts(session: Session, job: Job) -> list[Verdict]:
    """Return what is known of each part of the newest round."""
    held: Mapping[str, list[Submission]] = session.info.get(_PARTS, {})
    rows = (
        held.get(job.id)
        or session.exec(
            select(Submission).where(col(Submission.job_id) == job.id)
        ).all()
    )
    newest = max(row.round for row in rows)
    return [_verdict_of(row) for row in rows if row.round == newest]


def _verdict_of(row: Submission) -> Verdict:
    if row.state == Sending.REFUSED:
        return Verdict(State.FAILED, "Slurm refused a part of the array.")
    if row.state == Sending.WITHDRAWN:
        return Verdict(State.CANCELLED, "It was cancelled.")
    if row.state in {Sending.QUEUED, Sending.CLAIMED, Sending.DOUBTFUL}:
        return Verdict(State.PENDING, "A part is still to be submitted.")
    if not row.result:
        return Verdict(State.PENDING)
    return Verdict(
        State(row.result), row.result_reason, row.seen, exit_code=row.exit_code
    )


def _store_state(
    session: Session, job: Job, whole: Verdict, new: Sequence[Attempt], now: datetime
) -> None:
    if whole.state is None:
        return
    if whole.state is State.FAILED and job.cancel_asked and job.tasks == 1:
        whole = _cancelled_rather(whole)
    changed = job.state != whole.state
    returned = not changed and new and whole.state is State.RUNNING
    if not changed and not returned and job.reason == whole.reason:
        return
    if not changed and whole.state is State.PENDING and not in_words(whole.reason):
        return  # Slurm has not looked at it anew: what it said last still holds
    if job.state in FINAL and changed:
        job.ended_at = job.exit_code = None
    reason = whole.reason or _words_for(job, whole, new)
    job.state = str(whole.state)
    job.reason = whole.reason
    if whole.is_over:
        job.ended_at = _last_end(session, job) or now
        job.exit_code = whole.exit_code
    kind = "state" if changed else "attempt" if returned else "reason"
    events.add(session, job, kind, reason, now, {"slurm": whole.word})


def _cancelled_rather(whole: Verdict) -> Verdict:
    """Call a job cancelled that failed because it was to be cancelled."""
    return replace(whole, state=State.CANCELLED)


def _words_for(job: Job, whole: Verdict, new: Sequence[Attempt]) -> str:
    if whole.state is State.RUNNING and new and job.tasks == 1:
        last = new[-1]
        return f"Attempt {last.number} runs on {', '.join(last.nodes)}."
    if whole.state is State.PENDING and job.state == State.RUNNING:
        return "It went back into the queue."
    return {
        State.PENDING: "It waits in the queue.",
        State.RUNNING: "It runs.",
        State.SUSPENDED: "It was suspended.",
        State.COMPLETED: "It ended well.",
        State.CANCELLED: "It was cancelled.",
    }.get(whole.state or State.FAILED, "It failed.")


def _store_starts(
    session: Session, job: Job, submission: Submission, starts: Sequence[Start]
) -> list[Attempt]:
    """Write attempts that are new or have changed; returns the new ones."""
    if not starts:
        return []
    rows = session.exec(select(Attempt).where(col(Attempt.job_id) == job.id)).all()
    known = {(row.slurm_job_id, row.task, row.started_at): row for row in rows}
    new: list[Attempt] = []
    for told in starts:
        start = _in_whole_array(told, submission.offset)
        key = (submission.slurm_job_id or 0, start.task, start.started_at)
        row = known.get(key)
        if row is None:
            row = _new_attempt(job, submission, start)
            session.add(row)
            new.append(row)
        else:
            _refresh(row, start)
    if new:
        _number([*rows, *new])
        job.attempts = len(rows) + len(new)
        first = min(row.started_at for row in [*rows, *new])
        job.started_at = first
    return sorted(new, key=lambda row: row.started_at)


def _in_whole_array(start: Start, offset: int) -> Start:
    """Give a task the index that was asked for, not the one in its part."""
    return replace(start, task=start.task + offset) if start.task >= 0 else start


def _new_attempt(job: Job, submission: Submission, start: Start) -> Attempt:
    return Attempt(
        job_id=job.id,
        submission_id=submission.id or 0,
        cluster=job.cluster,
        slurm_job_id=submission.slurm_job_id or 0,
        task=start.task,
        number=0,
        submitted_at=start.submitted_at,
        started_at=start.started_at,
        ended_at=start.ended_at,
        state=start.state,
        reason=start.reason,
        exit_code=start.exit_code,
        exit_signal=start.exit_signal,
        nodes=list(start.nodes),
    )


def _refresh(row: Attempt, start: Start) -> None:
    """Take in what became known; an end that is known is not forgotten again.

    Nodes that squeue no longer shows (given back while the job ends) stay.
    """
    if row.ended_at is not None and start.ended_at is None:
        return
    row.state, row.ended_at = start.state, start.ended_at
    row.reason = start.reason or row.reason
    if start.exit_code is not None:
        row.exit_code, row.exit_signal = start.exit_code, start.exit_signal
    if len(start.nodes) >= len(row.nodes) and list(start.nodes) != row.nodes:
        row.nodes = list(start.nodes)


def _number(rows: Sequence[Attempt]) -> None:
    """Give the starts of each task their numbers, from 1, by time."""
    counts: dict[int, int] = {}
    for row in sorted(rows, key=lambda r: r.started_at):
        counts[row.task] = counts.get(row.task, 0) + 1
        row.number = counts[row.task]


def _last_end(session: Session, job: Job) -> datetime | None:
    rows = session.exec(
        select(Attempt.ended_at).where(
            col(Attempt.job_id) == job.id, col(Attempt.ended_at).is_not(None)
        )
    ).all()
    return max((end for end in rows if end is not None), default=None)
