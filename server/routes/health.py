"""/api/v1/health, /ready and /metrics: for those who look after the service."""

from __future__ import annotations

import math
from importlib.metadata import version

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from hpcplat.errors import UnavailableError
from hpcplat.slurm.scheduler import Health
from server.dependencies import Asking, Serving
from server.queries import jobs, submissions
from server.schemas import Healthy, Ready
from server.service import Service

router = APIRouter(tags=["health"])


@router.get("/health", summary="Is the process up?")
def health() -> Healthy:
    """Answer at all: nothing behind the service is asked."""
    return Healthy(status="ok", version=version("hpcplat"))


@router.get(
    "/ready",
    summary="Can the service do its work?",
    responses={503: {"model": Ready, "description": "Something is missing."}},
)
def ready(serving: Serving, response: Response) -> Ready:
    """Tell whether the database and Slurm answer."""
    database = serving.is_database_current()
    slurm = _slurm(serving)
    told = [
        "" if database else "The database does not answer, or is of another release.",
        slurm.detail,
        serving.reconciler.degraded,
    ]
    is_ready = database and slurm.controller
    response.status_code = 200 if is_ready else 503
    return Ready(
        is_ready=is_ready,
        database=database,
        controller=slurm.controller,
        accounting=slurm.accounting,
        detail="; ".join(dict.fromkeys(filter(None, told))),
    )


@router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
def metrics(serving: Serving, _asking: Asking) -> Response:
    """Return queue depth, jobs by state, times of Slurm's answers and of the API's."""
    with serving.database.read() as session:
        states = jobs.count_by_state(session)
        queue = submissions.waiting_count(session)
    age = serving.look_age()
    page = serving.metrics.page(states, queue, age if math.isfinite(age) else math.nan)
    return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")


def _slurm(serving: Service) -> Health:
    try:
        return serving.site.health()
    except UnavailableError as error:
        return Health(controller=False, accounting=False, detail=str(error))
