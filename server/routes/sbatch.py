"""/api/v1/sbatch: calls of sbatch by way of the drop-in."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel

from server import adoption, announcement
from server.adoption import Adoptions, SbatchCall, SbatchCalls
from server.dependencies import Asking, Body, BulkBody, Serving

router = APIRouter(prefix="/sbatch", tags=["jobs"])


SCHEMAS: Final = (SbatchCall, SbatchCalls)


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return what OpenAPI is told of a body that is read by hand, within its limit."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    }


@router.post(
    "/announce",
    status_code=204,
    summary="Ask before sbatch runs",
    openapi_extra=body_of(SbatchCall),
)
def announce(serving: Serving, asking: Asking, content: Body) -> None:
    """Say whether the job may be submitted: 204, or 403 with the reason why not.

    Refused is what the limits of your account never let run; Slurm would let it wait for
    ever. All else is Slurm's own to judge.
    """
    call = adoption.read(SbatchCall, content)
    announcement.refuse_over_quota(serving, asking, call)


@router.post(
    "", summary="Tell what sbatch submitted", openapi_extra=body_of(SbatchCalls)
)
def adopt(serving: Serving, asking: Asking, content: BulkBody) -> Adoptions:
    """Track jobs that your own sbatch submitted; telling it twice changes nothing."""
    told = adoption.read(SbatchCalls, content)
    return Adoptions(calls=adoption.adopted(serving, asking, told.calls))
