"""/api/v1/workspaces: teams, their members, and who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from server.dependencies import Asking, Serving, Source
from server.people import history, workspaces
from server.people.records import (
    NAME_PATTERN,
    AuditList,
    RoleRequest,
    WorkspaceDetails,
    WorkspaceList,
    WorkspaceRequest,
)
from server.people.workspaces import Asker

router = APIRouter(tags=["workspaces"])

WorkspaceName = Annotated[str, Path(pattern=NAME_PATTERN, examples=["nlp"])]
UserName = Annotated[str, Path(pattern=NAME_PATTERN, examples=["alice"])]


async def asker(asking: Asking, source: Source) -> Asker:
    """Return who asks, and from where."""
    return Asker(asking, source)


By = Annotated[Asker, Depends(asker)]


@router.get("/workspaces", summary="List workspaces")
def list_workspaces(serving: Serving, asking: Asking) -> WorkspaceList:
    """Return the workspaces that you are in; to administrators, all."""
    return WorkspaceList(workspaces=workspaces.listed(serving.database, asking))


@router.post("/workspaces", status_code=201, summary="Make a workspace")
def make(serving: Serving, by: By, request: WorkspaceRequest) -> WorkspaceDetails:
    """Make a workspace for a Slurm account; administrators alone."""
    account = request.account or request.name
    parent = request.parent or ""
    return workspaces.make(serving.database, by, request.name, account, parent)


@router.get("/workspaces/{name}", summary="See a workspace")
def see(serving: Serving, asking: Asking, name: WorkspaceName) -> WorkspaceDetails:
    """Return a workspace with its members and quotas."""
    return workspaces.shown(serving.database, asking, name)


@router.delete("/workspaces/{name}", status_code=204, summary="Close a workspace")
def close(serving: Serving, by: By, name: WorkspaceName) -> None:
    """Close a workspace without live jobs; its history stays. Administrators alone."""
    workspaces.close(serving.database, by, name)


@router.put("/workspaces/{name}/members/{user}", summary="Add a member")
def set_member(
    serving: Serving, by: By, name: WorkspaceName, user: UserName, request: RoleRequest
) -> WorkspaceDetails:
    """Put somebody into a workspace, or change their role; its owners may."""
    return workspaces.set_member(serving.database, by, name, user, request.role)


@router.delete(
    "/workspaces/{name}/members/{user}", status_code=204, summary="Remove a member"
)
def remove_member(
    serving: Serving, by: By, name: WorkspaceName, user: UserName
) -> None:
    """Take somebody out; their running jobs run on, and they may still end them."""
    workspaces.remove_member(serving.database, by, name, user)


@router.get("/audit", summary="See who did what")
def audit(
    serving: Serving,
    asking: Asking,
    workspace: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> AuditList:
    """Return the newest entries: of a workspace to its owners, all to administrators."""
    entries = history.read(serving.database, asking, workspace, limit, before)
    return AuditList(entries=entries)
