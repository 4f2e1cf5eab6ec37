"""Arrivals: that Slurm has submissions, noted by four statements whatever their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlmodel import Session, SQLModel

from server.queries import events
from server.states import Sending, State


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a submission and its job stand."""

    submission_id: int
    sending: str
    slurm_job_id: int | None
    job_id: str
    state: str
    reason: str
    events: int


_SUBMISSIONS = SQLModel.metadata.tables["submission"]
_JOBS = SQLModel.metadata.tables["job"]
_SUBMISSION, _JOB = _SUBMISSIONS.c, _JOBS.c
# Built once, and without objects for rows: this is done for every job.
_STANDING = (
    select(
        _SUBMISSION.id,
        _SUBMISSION.state,
        _SUBMISSION.slurm_job_id,
        _JOB.id,
        _JOB.state,
        _JOB.reason,
        _JOB.events,
    )
    .join(_JOBS, _JOB.id == _SUBMISSION.job_id)
    .where(_SUBMISSION.id.in_(bindparam("rows", expanding=True)))
    .order_by(_SUBMISSION.id)
    .with_for_update()
)
_SENT = (
    update(_SUBMISSIONS)
    .where(_SUBMISSION.id == bindparam("row"))
    .values(state=Sending.SENT, is_over=False, missed_at=None)
    .values(slurm_job_id=bindparam("number"), sent_at=bindparam("at"))
)
_TAKEN = (
    update(_JOBS)
    .where(_JOB.id == bindparam("job"))
    .values(slurm_job_id=bindparam("number"), events=bindparam("count"))
    .values(state=bindparam("stands"), reason=bindparam("why"))
    .values(updated_at=bindparam("at"))
)


def note(session: Session, numbers: Mapping[int, int], now: datetime) -> set[int]:
    """Note Slurm's numbers of submissions, however they became known.

    Returns those of which another Slurm job is noted already: then the one that is
    given here is a twin, and must go.
    """
    session.flush()
    asked = session.connection().execute(_STANDING, {"rows": list(numbers)})
    rows = [Standing(*row) for row in asked]
    there = [row for row in rows if row.sending == Sending.SENT]
    new = [row for row in rows if row.sending != Sending.SENT]
    if new:
        _write(session, new, numbers, now)
    return {
        row.submission_id
        for row in there
        if row.slurm_job_id != numbers[row.submission_id]
    }


def _write(
    session: Session,
    rows: Sequence[Standing],
    numbers: Mapping[int, int],
    now: datetime,
) -> None:
    connection = session.connection()
    sent = [
        {"row": one.submission_id, "number": numbers[one.submission_id], "at": now}
        for one in rows
    ]
    connection.execute(_SENT, sent)
    earlier: Counter[str] = Counter()  # parts of one array may arrive together
    taken = []
    for row in rows:
        earlier[row.job_id] += 1
        count = row.events + earlier[row.job_id]
        taken.append(_taken(row, numbers[row.submission_id], count, now))
    connection.execute(_TAKEN, taken)
    events.add_rows(session, [_event(one) for one in taken])
    session.expire_all()  # what was read of these rows before is old now


def _taken(row: Standing, number: int, count: int, now: datetime) -> dict[str, Any]:
    waited = row.state in {State.QUEUED, State.SUBMITTING}
    return {
        "job": row.job_id,
        "number": number,
        "count": count,
        "stands": State.PENDING if waited else row.state,
        "why": "" if waited else row.reason,
        "at": now,
    }


def _event(taken: Mapping[str, Any]) -> dict[str, Any]:
    number = taken["number"]
    return events.row(
        taken["job"],
        taken["count"],
        "submitted",
        taken["stands"],
        f"Slurm has the job as {number}.",
        taken["at"],
        {"slurm_job_id": number},
    )
