"""/api/v1/quotas, /usage and /admin/sync: what people may have, and what they used."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from server import usage_report
from server.dependencies import Asking, Serving
from server.people import quota
from server.people.records import (
    NAME_PATTERN,
    QuotaAnswer,
    QuotaRequest,
    StandingList,
    SyncAnswer,
    UsageAnswer,
)
from server.routes.workspaces import By, WorkspaceName

router = APIRouter(tags=["quotas"])


@router.get("/quotas", summary="See quotas and their use")
def see(
    serving: Serving,
    asking: Asking,
    workspace: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
) -> StandingList:
    """Return what Slurm allows your workspaces, and who has it now."""
    return usage_report.standings(serving, asking, workspace)


@router.put("/workspaces/{name}/quota", summary="Set a quota")
def set_quota(
    serving: Serving, by: By, name: WorkspaceName, request: QuotaRequest
) -> QuotaAnswer:
    """Set what a workspace, or a member, may have; Slurm enforces it from then on."""
    kept = quota.set_quota(
        serving.database,
        serving.site.scheduler,
        by,
        name,
        request.user,
        request.limits,
    )
    serving.quotas.forget()
    return QuotaAnswer(workspace=name, user=request.user, limits=kept)


@router.post("/admin/sync", summary="Compare with Slurm's accounts")
def sync(
    serving: Serving, by: By, *, write: bool = False, adopt: bool = False
) -> SyncAnswer:
    """Return what differs; `write` makes Slurm follow, `adopt` makes us follow."""
    answer = quota.sync(
        serving.database, serving.site.scheduler, by, write=write, adopt=adopt
    )
    serving.quotas.forget()
    return answer


@router.get("/usage", summary="See what was used")
def usage(
    serving: Serving,
    asking: Asking,
    since: Annotated[datetime, Query(description="The period's beginning.")],
    until: Annotated[datetime | None, Query(description="By default now.")] = None,
) -> UsageAnswer:
    """Return GPU-hours by workspace and member: yours; an owner's members' too."""
    end = _aware(until or datetime.now(UTC))
    return usage_report.used(serving, asking, _aware(since), end)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
