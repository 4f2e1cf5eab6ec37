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
