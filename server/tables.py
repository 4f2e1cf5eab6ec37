"""What the database holds: one class a table, no behaviour."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Column, DateTime, Dialect, Index, Text, UniqueConstraint
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time in UTC, on databases that keep zones and on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(
        self, value: datetime | None, dialect: Dialect
    ) -> datetime | None:
        """Refuse naive times; send UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(
        self, value: datetime | None, dialect: Dialect
    ) -> datetime | None:
        """Return an aware UTC time."""
        if value is None:
            return None
        return (
            value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        )


def _when(**options: Any) -> Any:  # noqa: ANN401 - SQLModel's Field is untyped too
    return Field(sa_type=UtcDateTime, **options)


def _words() -> Any:  # noqa: ANN401
    return Field(default="", sa_type=Text)


class User(SQLModel, table=True):
    """A person, by the name of the Unix account."""

    __tablename__ = "user_account"  # "user" is a reserved word in PostgreSQL

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(max_length=255, unique=True)
    is_admin: bool = False
    created_at: datetime = _when()


class Workspace(SQLModel, table=True):
    """A team; its jobs run under one Slurm account (empty: the user's default)."""

    __tablename__ = "workspace"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(max_length=255, unique=True)
    account: str = Field(default="", max_length=255)
    parent: str = Field(default="", max_length=255)  # a workspace's name, or empty
    created_at: datetime = _when()
    closed_at: datetime | None = _when(default=None)


class Member(SQLModel, table=True):
    """A user in a workspace."""

    __tablename__ = "member"

    workspace_id: int = Field(foreign_key="workspace.id", primary_key=True)
    user_id: int = Field(foreign_key="user_account.id", primary_key=True, index=True)
    role: str = Field(max_length=16)


class Quota(SQLModel, table=True):
    """What a workspace, or one member of it, may have; Slurm enforces it."""

    __tablename__ = "quota"

    workspace_id: int = Field(foreign_key="workspace.id", primary_key=True)
    user: str = Field(default="", primary_key=True, max_length=255)  # empty: all
    limits: dict[str, str] = Field(sa_column=Column(JSON, nullable=False))
    set_by: str = Field(max_length=255)
    set_at: datetime = _when()


class Audit(SQLModel, table=True):
    """Who did, or was refused, what, when and from where; never altered."""

    __tablename__ = "audit"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = _when(index=True)
    who: str = Field(max_length=255)
    source: str = Field(max_length=255)  # an address, or "unix"
    action: str = Field(max_length=64)
    target: str = _words()
    workspace: str = Field(default="", max_length=255, index=True)
    is_refusal: bool = False
    detail: str = _words()


class Token(SQLModel, table=True):
    """A bearer token; only its SHA-256 is kept."""

    __tablename__ = "token"

    id: str = Field(primary_key=True, max_length=32)
    user_id: int = Field(foreign_key="user_account.id", index=True)
    digest: str = Field(max_length=64, unique=True)
    label: str = Field(default="", max_length=255)
    scopes: str = Field(default="read write manage", max_length=255)
    created_at: datetime = _when()
    expires_at: datetime = _when()
    used_at: datetime | None = _when(default=None)
    revoked_at: datetime | None = _when(default=None)


class Job(SQLModel, table=True):
    """What was asked for, and where it stands now."""

    __tablename__ = "job"
    __table_args__ = (
        UniqueConstraint("user_id", "idempotency_key", name="uq_job_idempotency"),
        Index("ix_job_state", "state", "id"),
        Index("ix_job_user", "user_id", "id"),
        Index("ix_job_workspace", "workspace_id", "id"),
        Index("ix_job_name", "name"),
        Index("ix_job_slurm", "cluster", "slurm_job_id"),
    )

    id: str = Field(primary_key=True, max_length=16)
    cluster: str = Field(max_length=64)
    workspace_id: int = Field(foreign_key="workspace.id")
    user_id: int = Field(foreign_key="user_account.id")
    name: str = Field(max_length=255)
    kind: str = Field(max_length=32)
    state: str = Field(max_length=16)
    reason: str = _words()
    spec: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    spec_digest: str = Field(max_length=64)
    idempotency_key: str | None = Field(default=None, max_length=255)
    folder: str = Field(sa_type=Text)
    partition: str = Field(default="", max_length=255)
    nodes: int = 1
    gpus: int = 0
    tasks: int = 1  # of an array; 1 for a plain job
    slurm_job_id: int | None = None  # of the newest submission
    attempts: int = 0
    exit_code: int | None = None
    events: int = 0  # the number of the newest event
    cancel_asked: bool = False
    created_at: datetime = _when()
    updated_at: datetime = _when()
    started_at: datetime | None = _when(default=None)
    ended_at: datetime | None = _when(default=None)


class KeptSecret(SQLModel, table=True):
    """A job whose run folder carries secret values; goes when they are wiped."""

    __tablename__ = "kept_secret"

    job_id: str = Field(primary_key=True, foreign_key="job.id", max_length=16)


class Submission(SQLModel, table=True):
    """One sbatch for a job; its key travels with the job in Slurm.

    A job has one, but for arrays that are cut to Slurm's MaxArraySize (several
    parts) and for jobs that were submitted anew (a later round replaces an earlier).
    """

    __tablename__ = "submission"
    __table_args__ = (
        UniqueConstraint("job_id", "round", "part", name="uq_submission_round"),
        Index("ix_submission_state", "cluster", "state", "id"),
        Index("ix_submission_slurm", "cluster", "slurm_job_id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="job.id", max_length=16)
    cluster: str = Field(max_length=64)
    round: int = 1
    part: int = 0
    offset: int = 0  # what is added to Slurm's index of a task
    key: str = Field(max_length=64, unique=True)
    state: str = Field(max_length=16)
    is_over: bool = False  # nothing of it will happen any more
    claim: str = Field(default="", max_length=64)  # who runs sbatch for it
    claimed_at: datetime | None = _when(default=None)
    doubted_at: datetime | None = _when(default=None)  # sbatch surely dead since
    tries: int = 0
    not_before: datetime | None = _when(default=None)
    slurm_job_id: int | None = None
    sent_at: datetime | None = _when(default=None)
    result: str = Field(default="", max_length=16)  # what this part makes of the job
    result_reason: str = _words()
    exit_code: int | None = None
    seen: str = Field(default="", max_length=32)  # squeue's last word on it
    missed_at: datetime | None = _when(default=None)  # absent from squeue since


class Attempt(SQLModel, table=True):
    """One start of a job (or array task) under Slurm; a requeue makes the next."""

    __tablename__ = "attempt"
    __table_args__ = (
        UniqueConstraint(
            "cluster", "slurm_job_id", "task", "started_at", name="uq_attempt_start"
        ),
        Index("ix_attempt_job", "job_id", "task", "number"),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="job.id", max_length=16)
    submission_id: int = Field(foreign_key="submission.id", index=True)
    cluster: str = Field(max_length=64)
    slurm_job_id: int  # of the array as a whole, for a task
    task: int = -1  # index in the array; -1: not an array
    number: int  # 1 for the first start of the job or task
    submitted_at: datetime = _when()
    started_at: datetime = _when()
    ended_at: datetime | None = _when(default=None)
    state: str = Field(max_length=32)  # Slurm's word
    reason: str = _words()
    exit_code: int | None = None
    exit_signal: int | None = None
    nodes: list[str] = Field(sa_column=Column(JSON, nullable=False))


class Event(SQLModel, table=True):
    """One change of a job, in words; never altered. Numbered within the job."""

    __tablename__ = "event"
    __table_args__ = (Index("ix_event_kind", "kind", "at"),)

    job_id: str = Field(foreign_key="job.id", primary_key=True, max_length=16)
    number: int = Field(primary_key=True)
    at: datetime = _when()
    kind: str = Field(max_length=32)
    state: str = Field(max_length=16)  # the job's, after the event
    reason: str = _words()
    data: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))


class Lease(SQLModel, table=True):
    """Who does something that one service at a time may do, and until when."""

    __tablename__ = "lease"

    name: str = Field(primary_key=True, max_length=128)
    holder: str = Field(max_length=64)
    expires_at: datetime = _when()
