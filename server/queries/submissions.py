"""Submissions: claimed by one service, settled by what Slurm says, watched to the end."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Integer, and_, bindparam, func, or_, update
from sqlalchemy import select as sa_select
from sqlmodel import Session, SQLModel, col, select

from server.queries import events
from server.queries.jobs import hold_jobs, locked
from server.states import Sending, State
from server.tables import Job, Submission, User, UtcDateTime, Workspace


@dataclass(frozen=True, slots=True)
class Work:
    """A claimed submission with all that is needed to send it."""

    submission_id: int
    job_id: str
    cluster: str
    key: str
    part: int
    tries: int
    claim: str
    claimed_at: datetime
    spec: Mapping[str, Any]
    folder: str
    user: str
    account: str
    attempts: int  # starts of earlier rounds


# Built once: to build a statement costs more than to run it.
_DUE = and_(
    col(Submission.cluster) == bindparam("cluster"),
    col(Submission.state) == Sending.QUEUED,
    or_(
        col(Submission.not_before).is_(None),
        col(Submission.not_before) <= bindparam("now", type_=UtcDateTime),
    ),
)
_QUEUED = (
    sa_select(
        col(Submission.id),
        col(Submission.key),
        col(Submission.part),
        col(Submission.tries),
        col(Job.id),
        col(Job.spec),
        col(Job.folder),
        col(Job.attempts),
        col(User.name),
        col(Workspace.account),
    )
    .join(Job, col(Job.id) == col(Submission.job_id))
    .join(User, col(User.id) == col(Job.user_id))
    .join(Workspace, col(Workspace.id) == col(Job.workspace_id))
    .where(_DUE)
    .order_by(col(Submission.id))
    .limit(bindparam("most", type_=Integer))
    .with_for_update(of=Submission, skip_locked=True)
)
_IS_DUE = sa_select(col(Submission.id)).where(_DUE).limit(1)
_CLAIM = (
    update(SQLModel.metadata.tables["submission"])
    .where(col(Submission.id) == bindparam("row"))
    .values(state=Sending.CLAIMED, doubted_at=None, tries=bindparam("tried"))
    .values(claim=bindparam("by"), claimed_at=bindparam("at", type_=UtcDateTime))
)
_HELD = "held"


def claim(session: Session, cluster: str, now: datetime, most: int = 1) -> list[Work]:
    """Claim the oldest queued submissions; two services never get the same one."""
    by = secrets.token_hex(8)
    connection = session.connection()
    asked = {"cluster": cluster, "now": now, "most": most}
    rows = connection.execute(_QUEUED, asked).all()
    works = [
        Work(
            submission_id=submission_id,
            job_id=job_id,
            cluster=cluster,
            key=key,
            part=part,
            tries=tries + 1,
            claim=by,
            claimed_at=now,
            spec=spec,
            folder=folder,
            user=user,
            account=account,
            attempts=attempts,
        )
        for (
            submission_id,
            key,
            part,
            tries,
            job_id,
            spec,
            folder,
            attempts,
            user,
            account,
        ) in rows
    ]
    if works:
        connection.execute(
            _CLAIM,
            [
                {"row": w.submission_id, "tried": w.tries, "by": by, "at": now}
                for w in works
            ],
        )
    return works


def hold(session: Session, works: Sequence[Work]) -> None:
    """Lock the rows of several submissions and their jobs by two questions in all."""
    numbers = [work.submission_id for work in works]
    names = [work.job_id for work in works]
    hold_jobs(session, names)
    held = session.exec(
        select(Submission)
        .where(col(Submission.id).in_(numbers))
        .order_by(col(Submission.id))
        .with_for_update()
    ).all()
    session.info[_HELD] = {row.id: row for row in held}


def still_claimed(session: Session, work: Work) -> bool:
    """Tell whether the claim is ours yet: nobody has taken it for dead. Locks it."""
    row = get(session, work.submission_id)
    return row.state == Sending.CLAIMED and row.claim == work.claim


def is_due(session: Session, cluster: str, now: datetime) -> bool:
    """Tell whether anything waits to be sent now."""
    asked = {"cluster": cluster, "now": now}
    return session.connection().execute(_IS_DUE, asked).first() is not None


def get(session: Session, submission_id: int) -> Submission:
    """Return a submission's row, locked until the transaction ends."""
    held: Mapping[int, Submission] = session.info.get(_HELD, {})
    if submission_id in held:
        return held[submission_id]
    return session.exec(
        select(Submission).where(col(Submission.id) == submission_id).with_for_update()
    ).one()


def with_job(session: Session, submission_id: int) -> tuple[Submission, Job]:
    """Return a submission and its job, both locked.

    The job first, as everybody does who locks both: two never wait for each other.
    """
    held: Mapping[int, Submission] = session.info.get(_HELD, {})
    if submission_id in held:
        job_id = held[submission_id].job_id
    else:
        job_id = session.exec(
            select(Submission.job_id).where(col(Submission.id) == submission_id)
        ).one()
    job = locked(session, job_id)
    return get(session, submission_id), job


def refused(session: Session, submission_id: int, reason: str, now: datetime) -> Job:
    """Note that Slurm refused it: the job has failed.

    Parts of an array that Slurm took already are cancelled first; the job ends when
    they have.
    """
    submission, job = with_job(session, submission_id)
    submission.state = Sending.REFUSED
    submission.is_over = True
    session.flush()
    job.reason = reason
    if withdraw(session, job):
        job.state, job.ended_at = State.FAILED, now
    else:
        job.cancel_asked = True
    events.add(session, job, "refused", reason, now)
    return job


def doubted(session: Session, submission_id: int, reason: str, now: datetime) -> None:
    """Note that sbatch ended (or was given up) without a clear answer."""
    submission, job = with_job(session, submission_id)
    if submission.state not in {Sending.CLAIMED, Sending.DOUBTFUL}:
        return
    submission.state = Sending.DOUBTFUL
    submission.doubted_at = submission.doubted_at or now
    submission.missed_at = None
    if job.state == State.QUEUED:
        job.state = State.SUBMITTING
    job.reason = f"{reason} Looking whether Slurm has the job."
    events.add(session, job, "doubt", job.reason, now)


def queued_again(
    session: Session, submission_id: int, reason: str, now: datetime, at: datetime
) -> None:
    """Let it be sent again, not before ``at``: Slurm surely does not have it.

    A job that is to be cancelled is taken back instead: it never runs.
    """
    submission, job = with_job(session, submission_id)
    if job.cancel_asked:
        taken_back(session, submission_id, now)
        return
    submission.state = Sending.QUEUED
    submission.claim = ""
    submission.doubted_at = submission.missed_at = None
    submission.not_before = at
    if job.state == State.SUBMITTING:
        job.state = State.QUEUED
    if job.reason != reason:
        job.reason = reason
        events.add(session, job, "queued", reason, now)


def withdraw(session: Session, job: Job) -> bool:
    """Take back what Slurm never had; True when nothing else is left of the job."""
    _withdraw_queued(session, job.id)
    left = session.exec(
        select(Submission.id)
        .where(col(Submission.job_id) == job.id, col(Submission.is_over).is_(False))
        .limit(1)
    ).one_or_none()
    return left is None


@dataclass(frozen=True, slots=True)
class Watched:
    """A submission that is not over, as the reconcile loop needs it."""

    submission_id: int
    job_id: str
    key: str
    state: str
    result: str
    result_reason: str
    claimed_at: datetime | None
    doubted_at: datetime | None
    slurm_job_id: int | None
    sent_at: datetime | None
    seen: str
    missed_at: datetime | None
    tries: int
    cancel_asked: bool
    folder: str
    offset: int
    name: str
    kind: str
    user: str


def in_hand(session: Session, cluster: str) -> Sequence[Watched]:
    """Return what is claimed, doubtful or with Slurm and not over yet."""
    rows = session.execute(
        sa_select(
            col(Submission.id),
            col(Submission.job_id),
            col(Submission.key),
            col(Submission.state),
            col(Submission.result),
            col(Submission.result_reason),
            col(Submission.claimed_at),
            col(Submission.doubted_at),
            col(Submission.slurm_job_id),
            col(Submission.sent_at),
            col(Submission.seen),
            col(Submission.missed_at),
            col(Submission.tries),
            col(Job.cancel_asked),
            col(Job.folder),
            col(Submission.offset),
            col(Job.name),
            col(Job.kind),
            col(User.name),
        )
        .join(Job, col(Job.id) == col(Submission.job_id))
        .join(User, col(User.id) == col(Job.user_id))
        .where(col(Submission.cluster) == cluster)
        .where(
            col(Submission.state).in_((Sending.CLAIMED, Sending.DOUBTFUL, Sending.SENT))
        )
        .where(col(Submission.is_over).is_(False))
        .order_by(col(Submission.id))
    ).all()
    return [Watched(*row) for row in rows]


def missed(session: Session, submission_id: int, since: datetime | None) -> None:
    """Note since when Slurm has not shown a submission that is in doubt."""
    get(session, submission_id).missed_at = since


def unchanged(session: Session, seen: Watched) -> bool:
    """Lock a submission; tell whether nobody has moved it since it was read."""
    row = get(session, seen.submission_id)
    return (row.state, row.claimed_at, row.doubted_at) == (
        seen.state,
        seen.claimed_at,
        seen.doubted_at,
    )


def renumber(
    session: Session, submission_id: int, slurm_job_id: int, now: datetime
) -> None:
    """Note another Slurm id for a submission: the first was not that of its key."""
    submission, job = with_job(session, submission_id)
    reason = f"Slurm has the job as {slurm_job_id}, not {submission.slurm_job_id}."
    submission.slurm_job_id = job.slurm_job_id = slurm_job_id
    submission.missed_at = None
    events.add(session, job, "renumbered", reason, now, {"slurm_job_id": slurm_job_id})


def revive(session: Session, submission_id: int, now: datetime) -> bool:
    """Watch a submission again whose job somebody put back into Slurm's queue.

    False if it was replaced by a later round: then the job must not run.
    """
    submission, job = with_job(session, submission_id)
    newest = session.exec(
        select(func.max(Submission.round)).where(col(Submission.job_id) == job.id)
    ).one()
    if submission.round != newest:
        return False
    submission.is_over = False
    submission.missed_at = None
    events.add(session, job, "returned", "The job is back in Slurm's queue.", now)
    return True


def watch_again(session: Session, job_id: str) -> None:
    """Watch what was over: the job was put back into the queue."""
    session.execute(
        update(Submission)
        .where(col(Submission.job_id) == job_id)
        .where(col(Submission.state) == Sending.SENT)
        .values(is_over=False, missed_at=None)
    )


def taken_back(session: Session, submission_id: int, now: datetime) -> None:
    """Note that Slurm does not have what was to be cancelled anyway."""
    submission, job = with_job(session, submission_id)
    submission.state = Sending.WITHDRAWN
    submission.is_over = True
    session.flush()
    if withdraw(session, job):
        cancelled(session, job, now)


def cancelled(session: Session, job: Job, now: datetime) -> None:
    """Note that a job was cancelled before Slurm had it."""
    job.state, job.ended_at = State.CANCELLED, now
    job.reason = "It was cancelled before Slurm had it."
    events.add(session, job, "state", job.reason, now)


def given_up(session: Session, submission_id: int, now: datetime) -> None:
    """Fail a job of which nobody can tell any more whether Slurm ran it."""
    refused(
        session,
        submission_id,
        "sbatch gave no clear answer, and too much time has passed to find out"
        " whether Slurm had the job. See its run folder, then submit it again.",
        now,
    )


def with_keys(session: Session, keys: Sequence[str]) -> Sequence[Submission]:
    """Return the submissions with these keys (a few hundred at a time)."""
    found: list[Submission] = []
    for start in range(0, len(keys), 500):
        chunk = keys[start : start + 500]
        query = select(Submission).where(col(Submission.key).in_(chunk))
        found.extend(session.exec(query).all())
    return found


def waiting_count(session: Session) -> int:
    """Return how many submissions wait to be sent."""
    return session.exec(
        select(func.count()).where(col(Submission.state) == Sending.QUEUED)
    ).one()


def _withdraw_queued(session: Session, job_id: str) -> None:
    session.execute(
        update(Submission)
        .where(col(Submission.job_id) == job_id)
        .where(col(Submission.state) == Sending.QUEUED)
        .values(state=Sending.WITHDRAWN, is_over=True)
    )
