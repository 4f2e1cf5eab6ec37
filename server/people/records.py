"""What the API takes and gives of people."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from server.states import Role

# What Slurm's accounts, and Unix names of people, may be made of.
NAME_PATTERN = r"^[a-z0-9][a-z0-9_.\-]{0,62}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, examples=["nlp"])]


class Record(BaseModel):
    """A record that crosses the border."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="forbid")


class WorkspaceRequest(Record):
    """A workspace to make."""

    name: Name
    account: Name | None = Field(
        default=None, description="The Slurm account; by default the name."
    )
    parent: Name | None = None


class RoleRequest(Record):
    """What somebody is to be."""

    role: Role = Role.DEVELOPER


class WorkspaceAnswer(Record):
    """A team and its Slurm account."""

    name: str
    account: str
    parent: str
    role: str = Field(description="Yours; empty if you are no member.")


class MemberAnswer(Record):
    """Somebody in a workspace."""

    user: str
    role: Role


class WorkspaceDetails(WorkspaceAnswer):
    """A workspace with its people and what they may have."""

    members: list[MemberAnswer]
    quotas: dict[str, dict[str, str]] = Field(
        description="Limits by member; the empty name is the whole workspace."
    )
    live_jobs: int


class WorkspaceList(Record):
    """Workspaces that you may see."""

    workspaces: list[WorkspaceAnswer]


class AuditAnswer(Record):
    """Who did, or was refused, what."""

    id: int
    at: datetime
    who: str
    source: str
    action: str
    target: str
    workspace: str
    is_refusal: bool
    detail: str


class AuditList(Record):
    """The newest entries first."""

    entries: list[AuditAnswer]


class QuotaRequest(Record):
    """What a workspace, or one member, is to have; it replaces what was set before."""

    user: Annotated[str, Field(pattern=r"^$|" + NAME_PATTERN)] = ""
    limits: dict[str, str] = Field(
        max_length=40,
        examples=[{"gpus": "16", "gpus:h100": "8", "longest_time": "1-00:00:00"}],
        description="gpus, gpus:TYPE, gpu_hours, nodes, running_jobs, submitted_jobs,"
        " longest_time, share, qos.",
    )


class QuotaAnswer(Record):
    """What was set."""

    workspace: str
    user: str
    limits: dict[str, str]


class LimitAnswer(Record):
    """A limit of Slurm's, and how much of it is used."""

    owner: str
    name: str
    what: str
    allowed: int
    used: int


class UserUse(Record):
    """What one member holds now."""

    user: str
    gpus: int
    running: int
    waiting: int
    fair_share: float | None


class StandingAnswer(Record):
    """What a workspace may have, and who has it."""

    workspace: str
    account: str
    limits: list[LimitAnswer]
    users: list[UserUse]
    norm_shares: float | None
    effective_usage: float | None


class StandingList(Record):
    """Your workspaces' quotas."""

    standings: list[StandingAnswer]


class DifferenceAnswer(Record):
    """Something that differs between the workspaces and Slurm's accounts."""

    what: str
    ours: str
    slurms: str
    command: str = Field(description="What makes Slurm follow; empty: adopt it.")


class SyncAnswer(Record):
    """What differed, and what still does."""

    differences: list[DifferenceAnswer]
    left: list[DifferenceAnswer]


class UsageRow(Record):
    """What somebody used in a workspace, for a project."""

    workspace: str
    user: str
    project: str = Field(
        description="The WCKey of the jobs; empty where none is named."
    )
    jobs: int
    gpu_hours_asked: float = Field(
        description="GPUs times the time limit, of each start inside the period."
    )
    gpu_hours: float = Field(description="GPUs times the time that they were held.")
    gpu_hours_idle: float = Field(
        description="Those in which no rank made steps, no step of Slurm's ran, or each"
        " sample found the GPU at 0 %."
    )
    gpu_hours_unknown: float = Field(
        description="Those in which something ran, and nobody saw whether on the GPUs."
    )
    cpu_hours: float
    price: float | None


class UsageAnswer(Record):
    """What was used in a period, from accounting."""

    since: datetime
    until: datetime
    rows: list[UsageRow]
