"""Events: a job's history, appended and read, never altered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from server.tables import Event, Job


def add(
    session: Session,
    job: Job,
    kind: str,
    reason: str,
    now: datetime,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Append an event; the job's row must be locked by this transaction.

    Numbers have no gaps and become visible in order, on which resuming relies.
    """
    session.add(made(job, kind, reason, now, data))


def made(
    job: Job,
    kind: str,
    reason: str,
    now: datetime,
    data: Mapping[str, Any] | None = None,
) -> Event:
    """Return the job's next event, counted but not yet written."""
    job.events += 1
    job.updated_at = now
    return Event(
        job_id=job.id,
        number=job.events,
        at=now,
        kind=kind,
        state=job.state,
        reason=reason,
        data=dict(data or {}),
    )


def of_job(
    session: Session, job_id: str, after: int = 0, limit: int = 1000
) -> Sequence[Event]:
    """Return the events after a number, oldest first."""
    return session.exec(
        select(Event)
        .where(col(Event.job_id) == job_id, col(Event.number) > after)
        .order_by(col(Event.number))
        .limit(limit)
    ).all()
