"""Jobs: made, found, listed, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, func, insert, or_
from sqlalchemy.orm import defer
from sqlmodel import Session, SQLModel, col, select
from sqlmodel.sql.expression import Select

from hpcplat.errors import NotFoundError
from server.ids import submission_key
from server.queries import events
from server.states import FINAL, Sending, State
from server.tables import Attempt, Job, Submission, User
from server.tables import Workspace as WorkspaceTable

_HELD = "held jobs"
# Built once: to build a statement, or an object for a row, costs more than to run it.
_NEW_JOB = insert(SQLModel.metadata.tables["job"])
_NEW_SUBMISSION = insert(SQLModel.metadata.tables["submission"])


def _defaults(table: type[SQLModel]) -> dict[str, Any]:
    """Return what the columns hold where a row says nothing."""
    fields = table.model_fields.items()
    return {
        name: field.default
        for name, field in fields
        if not field.is_required() and name != "id"
    }


_JOB_DEFAULTS = _defaults(Job)
_SUBMISSION_DEFAULTS = _defaults(Submission)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that was admitted, before it has a row."""

    id: str
    cluster: str
    workspace_id: int
    user_id: int
    name: str
    kind: str
    spec: Mapping[str, Any]
    spec_digest: str
    folder: str
    partition: str
    nodes: int
    gpus: int
    tasks: int
    offsets: tuple[int, ...]  # of the parts of an array; (0,) for a plain job
    idempotency_key: str | None = None


_OF_NEW_JOB = [
    field.name for field in fields(NewJob) if field.name not in {"spec", "offsets"}
]


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose jobs somebody may see: all, or one's own and those of workspaces."""

    everything: bool
    user_id: int
    workspaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Filters:
    """What a listing is narrowed to; None means any."""

    states: tuple[str, ...] = ()
    workspace: str | None = None
    user: str | None = None
    name: str | None = None
    kind: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A job with the names of its workspace and user."""

    job: Job
    workspace: str
    user: str


def create(session: Session, asked: Sequence[NewJob], now: datetime) -> None:
    """Write jobs, their submissions and first events; by three statements in all."""
    if not asked:
        return
    connection = session.connection()
    connection.execute(_NEW_JOB, [_row(new, now) for new in asked])
    events.add_rows(session, [_first_event(new.id, now) for new in asked])
    queued = [
        _submission_row(new.id, new.cluster, 1, part, offset)
        for new in asked
        for part, offset in enumerate(new.offsets)
    ]
    if queued:
        connection.execute(_NEW_SUBMISSION, queued)


def _row(new: NewJob, now: datetime) -> dict[str, Any]:
    fields = {name: getattr(new, name) for name in _OF_NEW_JOB}
    own = {"spec": dict(new.spec), "state": State.QUEUED, "events": 1}
    return {**_JOB_DEFAULTS, **fields, **own, "created_at": now, "updated_at": now}


def _first_event(job_id: str, now: datetime) -> dict[str, Any]:
    return events.row(job_id, 1, "created", State.QUEUED, "The job was accepted.", now)


def _submission_row(
    job_id: str, cluster: str, number: int, part: int, offset: int
) -> dict[str, Any]:
    return {
        **_SUBMISSION_DEFAULTS,
        "job_id": job_id,
        "cluster": cluster,
        "round": number,
        "part": part,
        "offset": offset,
        "key": submission_key(job_id, number, part),
        "state": Sending.QUEUED,
    }


def add_submissions(
    session: Session, job: Job, number: int, offsets: Sequence[int]
) -> None:
    """Queue a round of submissions for a job."""
    rows = [
        _submission_row(job.id, job.cluster, number, part, offset)
        for part, offset in enumerate(offsets)
    ]
    session.flush()
    session.connection().execute(_NEW_SUBMISSION, rows)


def by_id(session: Session, job_id: str) -> Job | None:
    """Return the job with this id, whoever may see it."""
    return session.get(Job, job_id)


def by_idempotency_key(session: Session, user: int, key: str) -> Job | None:
    """Return the job that an earlier request with this key made."""
    return session.exec(
        select(Job).where(col(Job.user_id) == user, col(Job.idempotency_key) == key)
    ).one_or_none()


def find(session: Session, scope: Scope, reference: str) -> Named:
    """Return a job by its id or an unambiguous beginning of it (4 characters or more).

    Raises NotFoundError, also for a job that is somebody else's.
    """
    exact = session.exec(_BY_ID, params={"reference": reference}).one_or_none()
    if exact is not None and _sees(scope, exact[0]):
        return Named(*exact)
    rows = _beginning_with(session, scope, reference)
    if len(rows) == 1:
        return Named(*rows[0])
    if rows:
        raise NotFoundError(
            f"{reference} is the beginning of several jobs.", "Give more of the id."
        )
    raise NotFoundError(f"There is no job {reference}.", "List yours: hpcplat jobs.")


def _sees(scope: Scope, job: Job) -> bool:
    if scope.everything or job.user_id == scope.user_id:
        return True
    return job.workspace_id in scope.workspaces


def find_by_id_or_name(session: Session, scope: Scope, reference: str) -> Named:
    """Return a job by its id, or the newest one of that name."""
    try:
        return find(session, scope, reference)
    except NotFoundError:
        query = _named(scope).where(col(Job.name) == reference)
        newest = session.exec(query.order_by(col(Job.id).desc()).limit(1)).one_or_none()
        if newest is None:
            raise
    return Named(*newest)


def locked(session: Session, job_id: str) -> Job:
    """Return a job's row, locked until the transaction ends."""
    held: Mapping[str, Job] = session.info.get(_HELD, {})
    if job_id in held:
        return held[job_id]
    return session.exec(
        select(Job).where(col(Job.id) == job_id).with_for_update()
    ).one()


def hold_jobs(session: Session, job_ids: Sequence[str]) -> None:
    """Lock the rows of several jobs by one question, in the order of their ids."""
    rows = session.exec(
        select(Job).where(col(Job.id).in_(job_ids)).order_by(Job.id).with_for_update()
    ).all()
    session.info[_HELD] = {row.id: row for row in rows}


def listed(
    session: Session, scope: Scope, filters: Filters, before: str | None, limit: int
) -> Sequence[Named]:
    """Return jobs, newest first, those made before the job ``before``."""
    query = _named(scope).where(*_conditions(filters))
    if before is not None:
        query = query.where(col(Job.id) < before)
    # The spec is the largest part of a row, and no listing shows it.
    query = query.options(defer(Job.spec, raiseload=True))  # type: ignore[arg-type]
    rows = session.exec(query.order_by(col(Job.id).desc()).limit(limit)).all()
    return [Named(*row) for row in rows]


def submissions_of(session: Session, job_id: str) -> Sequence[Submission]:
    """Return a job's submissions, oldest first."""
    return session.exec(
        select(Submission)
        .where(col(Submission.job_id) == job_id)
        .order_by(col(Submission.round), col(Submission.part))
    ).all()


def standing(session: Session, job_id: str) -> tuple[State, tuple[int, ...]]:
    """Return a job's state and the Slurm ids of its newest round."""
    job = session.get_one(Job, job_id)
    rows = submissions_of(session, job_id)
    newest = max(row.round for row in rows)
    ids = tuple(
        row.slurm_job_id
        for row in rows
        if row.round == newest and row.slurm_job_id is not None
    )
    whole = len(ids) == sum(row.round == newest for row in rows)
    return State(job.state), ids if whole else ()


def part_id(session: Session, job_id: str, part: int) -> int | None:
    """Return the Slurm id of a part of an array, in its newest round."""
    rows = [row for row in submissions_of(session, job_id) if row.part == part]
    return max(rows, key=lambda row: row.round).slurm_job_id if rows else None


def attempts_of(session: Session, job_id: str, task: int | None) -> Sequence[Attempt]:
    """Return the starts of a job (or of one array task), oldest first."""
    query = select(Attempt).where(col(Attempt.job_id) == job_id)
    if task is not None:
        query = query.where(col(Attempt.task) == task)
    return session.exec(query.order_by(col(Attempt.task), col(Attempt.number))).all()


def count_by_state(session: Session) -> Mapping[str, int]:
    """Return how many jobs are in each state."""
    rows = session.exec(select(Job.state, func.count()).group_by(Job.state)).all()
    return dict(rows)


def live_count(session: Session) -> int:
    """Return how many jobs are not at their end."""
    return session.exec(select(func.count()).where(col(Job.state).not_in(FINAL))).one()


_NAMED = (
    select(Job, WorkspaceTable.name, User.name)
    .join(WorkspaceTable, col(WorkspaceTable.id) == col(Job.workspace_id))
    .join(User, col(User.id) == col(Job.user_id))
)
_BY_ID = _NAMED.where(col(Job.id) == bindparam("reference"))


def _named(scope: Scope) -> Select[Job, str, str]:
    return _NAMED if scope.everything else _NAMED.where(_visible(scope))


def _visible(scope: Scope) -> ColumnElement[bool]:
    own = col(Job.user_id) == scope.user_id
    return or_(own, col(Job.workspace_id).in_(scope.workspaces))


def _beginning_with(
    session: Session, scope: Scope, start: str
) -> Sequence[tuple[Job, str, str]]:
    if len(start) < 4 or not start.isalnum() or not start.isascii():
        return []
    low = start.lower()
    # A range, not LIKE: it uses the index in both databases, whatever the collation.
    inside = and_(col(Job.id) >= low, col(Job.id) <= low + "z" * (16 - len(low)))
    return session.exec(_named(scope).where(inside).limit(2)).all()


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    exact = {
        col(WorkspaceTable.name): filters.workspace,
        col(User.name): filters.user,
        col(Job.name): filters.name,
        col(Job.kind): filters.kind,
    }
    found: list[ColumnElement[bool]] = [
        column == value for column, value in exact.items() if value is not None
    ]
    if filters.states:
        found.append(col(Job.state).in_(filters.states))
    if filters.since is not None:
        found.append(col(Job.created_at) >= filters.since)
    return found
