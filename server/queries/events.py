"""Events: a job's history, appended and read, never altered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import insert
from sqlmodel import Session, SQLModel, col, select

from server.tables import Event, Job

# Built once: to build a statement, or an object for a row, costs more than to run it.
_NEW = insert(SQLModel.metadata.tables["event"])


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


def row(  # noqa: PLR0913 - a row's fields
    job_id: str,
    number: int,
    kind: str,
    state: str,
    reason: str,
    now: datetime,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an event's row, for ``add_rows``; its number is counted by the caller."""
    return {
        "job_id": job_id,
        "number": number,
        "at": now,
        "kind": kind,
        "state": state,
        "reason": reason,
        "data": dict(data or {}),
    }


def add_rows(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append events of many jobs, by one statement; the rows of the jobs are locked."""
    session.connection().execute(_NEW, rows)


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
