"""What recovery writes: what happened inside jobs, and nodes that died under them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from sqlmodel import Session, col, func, select

from hpcplat.eventlog import RunEvent
from server.queries import events
from server.queries.jobs import add_submissions, locked
from server.queries.submissions import Watched, with_job
from server.states import State
from server.tables import Attempt, Event, Job

DIED: Final = "node-died"
OFFSET: Final = "run_offset"  # in an event's data: how far the run folder was read
MOST_ATTEMPTS: Final = 10_000  # that the history of nodes is made of
LARGEST_DATA: Final = 20  # names and numbers that an event takes along
LONGEST_NAME: Final = 500  # characters
LARGEST_NUMBER: Final = 2**63  # what a program of another language reads


def offset_of(session: Session, job_id: str) -> int:
    """Return how far a job's event log was taken in before, in bytes."""
    rows = session.exec(select(Event.data).where(col(Event.job_id) == job_id)).all()
    return max((int(data.get(OFFSET, 0)) for data in rows), default=0)


def take_in(
    session: Session, job_id: str, told: Sequence[RunEvent], offset: int
) -> None:
    """Add what happened inside a job to its events; ``offset`` is where it ends."""
    job = locked(session, job_id)
    for event in told:
        data = {**_small(event), OFFSET: offset}
        at = datetime.fromtimestamp(event.time, UTC)
        events.add(session, job, event.kind, event.what[:2000], at, data)


def _small(event: RunEvent) -> dict[str, object]:
    """Return details that are numbers, names or short lists of them."""
    items = list(event.details.items())[:LARGEST_DATA]
    return {"attempt": event.attempt} | {
        key: value for key, value in items if _is_small(value)
    }


def _is_small(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= LARGEST_DATA and all(map(_is_scalar, value))
    return _is_scalar(value)


def _is_scalar(value: object) -> bool:
    """Tell whether a value can be kept, and sent as JSON: that has no infinity."""
    if isinstance(value, str):
        return len(value) < LONGEST_NAME and value.isprintable()
    if isinstance(value, int | float):
        return abs(value) < LARGEST_NUMBER
    return value is None


def died(
    session: Session, job_id: str, node: str, what: str, now: datetime, act: str
) -> None:
    """Note that a node died under a job, and what was done."""
    job = locked(session, job_id)
    events.add(session, job, DIED, what, now, {"node": node, "act": act})


def told(session: Session, job_id: str, kind: str, what: str, now: datetime) -> None:
    """Note what a job was told to do, and why."""
    events.add(session, locked(session, job_id), kind, what, now)


def dead_nodes(session: Session, cluster: str, since: datetime) -> list[str]:
    """Return the nodes that died under jobs since then, the newest first, each once."""
    rows = session.exec(
        select(Event.data)
        .join(Job, col(Job.id) == col(Event.job_id))
        .where(col(Event.kind) == DIED, col(Event.at) >= since)
        .where(col(Job.cluster) == cluster)
        .order_by(col(Event.at).desc())
    ).all()
    return list(dict.fromkeys(str(data["node"]) for data in rows))


def node_history(
    session: Session, cluster: str, since: datetime, now: datetime
) -> tuple[int, float]:
    """Return how many nodes died under trainings since then, and in how many hours.

    Hours of nodes, of the trainings that started since then: the newest MOST_ATTEMPTS.
    """
    rows = session.exec(
        select(Attempt.started_at, Attempt.ended_at, Job.nodes)
        .join(Job, col(Job.id) == col(Attempt.job_id))
        .where(col(Attempt.cluster) == cluster, col(Job.kind) == "train")
        .where(col(Attempt.started_at) >= since)
        .order_by(col(Attempt.started_at).desc())
        .limit(MOST_ATTEMPTS)
    ).all()
    if not rows:
        return 0, 0.0
    first = max(since, rows[-1][0])
    died = session.exec(
        select(func.count())
        .select_from(Event)
        .join(Job, col(Job.id) == col(Event.job_id))
        .where(col(Event.kind) == DIED, col(Event.at) >= first)
        .where(col(Job.cluster) == cluster, col(Job.kind) == "train")
    ).one()
    hours = sum(
        ((ended or now) - started).total_seconds() / 3600 * nodes
        for started, ended, nodes in rows
    )
    return died, hours


def send_elsewhere(
    session: Session, watched: Watched, reason: str, now: datetime
) -> None:
    """Submit a job anew; the loop cancels the submission that is replaced.

    One that is to be cancelled, or is over by now, stays as it is.
    """
    submission, job = with_job(session, watched.submission_id)
    if job.cancel_asked or submission.is_over:
        return
    submission.is_over = True
    job.state, job.reason = State.QUEUED, reason
    add_submissions(session, job, submission.round + 1, (0,))
    events.add(session, job, "queued", reason, now)
