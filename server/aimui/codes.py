"""/api/v1/ui: the way from the command line, or a program, into the Aim UI."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from hpcplat.errors import NotFoundError
from hpcplat.tracking.aimlink import aim_path
from server.aimui.proxy import Gate
from server.aimui.rules import safe_next
from server.dependencies import Asking

router = APIRouter(prefix="/ui", tags=["ui"])


class UiAddress(BaseModel):
    """Where the Aim UI is, for the person who asked."""

    path: str = Field(description="Valid once and for two minutes; it logs you in.")


@router.post("/codes", status_code=201, summary="Open the Aim UI")
async def make_code(
    asking: Asking,
    passing: Gate,
    to: Annotated[str, Query(max_length=2048, description="A path below /aim.")] = "",
) -> UiAddress:
    """Return an address below this service that logs a browser in as you."""
    base = passing.host.base
    code = passing.sessions.new_code(asking)
    return UiAddress(path=f"{base}/login?code={code}&next={safe_next(to, base)}")


@router.get("/runs/{workspace}/{job}", summary="Find a job's run in the Aim UI")
async def find_run(
    asking: Asking,
    passing: Gate,
    workspace: Annotated[str, Path(max_length=255)],
    job: Annotated[str, Path(max_length=64)],
) -> UiAddress:
    """Return where the run of a job is; it needs a session."""
    if workspace not in passing.sees(asking):
        raise NotFoundError("There is no such workspace.", "See: hpcplat runs ls")
    return UiAddress(path=aim_path(job, passing.host.base_of(workspace)))
