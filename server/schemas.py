"""What the API takes and gives: records that cross the border."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from hpcplat.jobs import JobSpec
from server.auth import ALL_SCOPES, TokenScope

EXAMPLE_SPEC: dict[str, Any] = {
    "name": "hello",
    "resources": {"nodes": 1, "gpus_per_node": 1, "time": "10m"},
    "command": ["nvidia-smi"],
}


class Answer(BaseModel):
    """A record that the service gives."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class JobRequest(BaseModel):
    """A job to submit."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={"examples": [{"spec": EXAMPLE_SPEC}]},
    )

    spec: JobSpec
    secrets: dict[str, str] = Field(
        default_factory=dict,
        description="Values of the secrets that the spec takes as env:…, each by the"
        " name that it has in the job."
        " They are written to a file of the job's user, and nowhere else.",
    )


class BulkRequest(BaseModel):
    """Many jobs to submit: all are admitted, or none."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={
            "examples": [{"jobs": [{"spec": EXAMPLE_SPEC}, {"spec": EXAMPLE_SPEC}]}]
        },
    )

    jobs: Annotated[list[JobRequest], Field(min_length=1, max_length=10_000)]


class JobAnswer(Answer):
    """A job and where it stands."""

    id: str = Field(examples=["01k9x3v7q4m2c8ra"])
    name: str
    kind: str
    workspace: str
    user: str
    cluster: str
    state: str = Field(
        description="QUEUED, SUBMITTING, PENDING, RUNNING, SUSPENDED, COMPLETED,"
        " FAILED or CANCELLED.",
        examples=["RUNNING"],
    )
    is_final: bool = Field(
        description="Whether the state can only change by a requeue."
    )
    reason: str = Field(description="Why it is in this state, in words.")
    slurm_job_id: int | None = Field(
        description="Slurm's number of it, once it has one."
    )
    partition: str
    nodes: int
    gpus: int
    tasks: int = Field(description="Tasks of the array; 1 for a plain job.")
    attempts: int = Field(description="How often it was started.")
    exit_code: int | None
    folder: str = Field(description="The run folder.")
    aim: str = Field(
        description="The page of its run in the Aim UI, a path of this service.",
        examples=["/aim/nlp/runs/46f0c1a5c7d64cf7b1b8a0d9/metrics"],
    )
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class JobDetails(JobAnswer):
    """A job with the spec that was asked for."""

    spec: dict[str, Any]
    ledger: dict[str, Any] | None = Field(
        default=None,
        description="Where a training's time went, and what each failure cost.",
    )


class JobPage(Answer):
    """Some of the jobs, newest first."""

    jobs: list[JobAnswer]
    next_cursor: str | None = Field(
        description="Give it as cursor to go on; null at the end."
    )


class Outlook(Answer):
    """What a job waits for."""

    waits_for: list[str] = Field(
        default_factory=list,
        description="Limits of Slurm's that it is over now, each with its owner.",
    )
    fair_share: float | None = Field(
        default=None,
        description="The fair-share factor, 0 to 1; the higher the sooner.",
    )
    place: int | None = Field(
        default=None, description="Its place in the partition's queue; 1 is next."
    )
    expected_start: datetime | None = Field(
        default=None, description="Slurm's guess; null if it can't tell."
    )
    reason: str = Field(default="", description="Why it waits, in words.")
    is_hopeless: bool = Field(
        default=False,
        description="Whether it can't start unless the job or a limit is changed.",
    )


class DryRun(Answer):
    """What would be submitted."""

    script: str = Field(description="The batch script, as sbatch would get it.")
    folder: str
    tasks: int
    parts: int = Field(description="Submissions that an array is cut to.")
    expected_start: datetime | None = Field(
        description="Slurm's guess; null if it can't tell."
    )
    outlook: Outlook = Field(default_factory=Outlook)


class BulkAnswer(Answer):
    """The jobs that a bulk request made, in its order."""

    ids: list[str]


class AttemptAnswer(Answer):
    """One start of a job under Slurm."""

    number: int
    task: int | None = Field(description="Index in the array; null for a plain job.")
    slurm_job_id: int
    submitted_at: datetime
    started_at: datetime
    ended_at: datetime | None
    state: str = Field(description="Slurm's own word.", examples=["NODE_FAIL"])
    reason: str
    exit_code: int | None
    exit_signal: int | None
    nodes: list[str]


class AttemptList(Answer):
    """All starts of a job."""

    attempts: list[AttemptAnswer]


class EventAnswer(Answer):
    """One change of a job."""

    number: int = Field(description="Counts from 1 within the job, without gaps.")
    at: datetime
    kind: str
    state: str = Field(description="The job's state after it.")
    reason: str
    data: dict[str, Any]


class EventPage(Answer):
    """Events in their order."""

    events: list[EventAnswer]
    is_final: bool = Field(description="Whether no more will come.")


class NodeAnswer(Answer):
    """A node of the cluster."""

    name: str
    state: str
    flags: list[str]
    partitions: list[str]
    features: list[str]
    gpus: Mapping[str, int]
    gpus_used: Mapping[str, int]
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    reason: str


class NodeList(Answer):
    """All nodes."""

    cluster: str
    nodes: list[NodeAnswer]


class PartitionAnswer(Answer):
    """A partition and its limits."""

    name: str
    is_default: bool
    state: str
    nodes: list[str]
    max_time_seconds: float | None
    default_time_seconds: float | None
    max_nodes: int | None


class PartitionList(Answer):
    """All partitions."""

    cluster: str
    partitions: list[PartitionAnswer]


class TokenRequest(BaseModel):
    """A token to make."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str = Field(default="", max_length=255, examples=["laptop"])
    days: int = Field(default=30, ge=1, le=365, description="How long it is valid.")
    scopes: frozenset[TokenScope] = Field(
        default=ALL_SCOPES,
        min_length=1,
        description="read: see; write: submit, cancel, requeue too; manage: members,"
        " quotas and tokens. Never more than you have yourself.",
    )


class TokenAnswer(Answer):
    """A token as it is listed: never its value."""

    id: str
    label: str
    scopes: str = Field(examples=["read write"])
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None


class NewToken(TokenAnswer):
    """A token that was just made."""

    token: str = Field(description="Shown this once.")


class TokenList(Answer):
    """A person's tokens."""

    tokens: list[TokenAnswer]


class Healthy(Answer):
    """The process answers."""

    status: str = Field(examples=["ok"])
    version: str


class Ready(Answer):
    """Whether the service can do its work."""

    is_ready: bool
    database: bool
    controller: bool
    accounting: bool
    detail: str = Field(description="What is wrong, in words; empty if nothing is.")


class Invalid(Answer):
    """One field that is wrong."""

    field: str = Field(examples=["spec.resources.gpu_type"])
    detail: str = Field(examples=["There is no GPU type h10."])
    remedy: str = Field(examples=["The nearest is h100."])


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(examples=["urn:hpcplat:invalid"])
    title: str
    status: int
    detail: str
    remedy: str = ""
    errors: list[Invalid] = Field(default_factory=list)
    job_id: str | None = Field(
        default=None, description="The job that the problem is about, if it has a row."
    )
