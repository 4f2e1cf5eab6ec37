"""The ASGI application: routes over a service, errors as problem documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.concurrency import run_in_threadpool

from hpcplat.settings import Settings, own_environment
from hpcplat.sitepolicy import SitePolicy, read_policy
from hpcplat.slurm.scheduler import Scheduler
from server import problems
from server.auth import Principal
from server.database import Database
from server.doors import Doors
from server.identity.choice import submitting
from server.limits import Observed
from server.remembering import Remembered
from server.routes import (
    cluster,
    health,
    jobs,
    quotas,
    sbatch,
    streams,
    tokens,
    workspaces,
)
from server.schemas import Problem
from server.service import Service, Times

PREFIX: Final = "/api/v1"
BELIEVED: Final = 5.0  # seconds that a token's holder is believed without a look
DESCRIPTION: Final = (
    "Train on Slurm clusters: submit, watch, recover, prove the resume. Errors are"
    " RFC 9457 problem documents that name the field and the remedy."
)
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "model": Problem,
        "description": title,
        "content": {problems.MEDIA_TYPE: {}},
    }
    for status, (_, title) in problems.TITLES.items()
    if status not in {405, 500}
}
PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
REQUEST_SCHEMAS: Final = [
    (model, "validation") for model in (*jobs.SCHEMAS, *sbatch.SCHEMAS)
]


def create_app(service: Service, *, threads: bool) -> FastAPI:
    """Return the application over a service.

    ``threads``: run the submitter and the reconcile loop (a site's service); without
    them each request does what is due (embedded in a command).
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(service.database.migrate)
        if threads:
            service.start()
        try:
            yield
        finally:
            await run_in_threadpool(service.stop)

    app = FastAPI(
        title="hpcplat",
        version=version("hpcplat"),
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=f"{PREFIX}/docs",
        redoc_url=None,
    )
    app.state.service = service
    app.state.principals = Remembered[str, Principal](BELIEVED)
    app.state.doors = Doors.of_policy(service.policy)
    for module in (jobs, sbatch, streams, cluster, health, tokens, workspaces, quotas):
        app.include_router(module.router, prefix=PREFIX, responses=PROBLEMS)
    problems.install(app)
    app.add_middleware(Observed, metrics=service.metrics)
    setattr(app, "openapi", lambda: _openapi(app))  # noqa: B010 - FastAPI's own way
    return app


def embedded_app(settings: Settings) -> FastAPI:
    """Return the application that a command runs in its own process."""
    return create_app(make_service(settings), threads=False)


def make_service(
    settings: Settings,
    scheduler: Scheduler | None = None,
    times: Times | None = None,
    environ: dict[str, str] | None = None,
) -> Service:
    """Return the service that the settings describe."""
    policy = _policy(settings)
    chosen, fill = scheduler, None
    if chosen is None:
        chosen, fill = submitting(policy, environ or own_environment())
    return Service(
        Database(settings.database),
        chosen,
        runs=str(settings.runs),
        policy=policy,
        times=times,
        fill=fill,
    )


def _policy(settings: Settings) -> SitePolicy:
    """Return the site's policy: its file, or what fits most sites."""
    policy = SitePolicy() if settings.policy is None else read_policy(settings.policy)
    if policy.datasets is not None:
        return policy
    return policy.model_copy(update={"datasets": str(settings.datasets)})


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with the bodies that routes read by hand."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        _, definitions = models_json_schema(
            REQUEST_SCHEMAS, ref_template="#/components/schemas/{model}"
        )
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(definitions["$defs"])
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        _name_problems(document)
        app.openapi_schema = document
    return app.openapi_schema


def _name_problems(document: dict[str, Any]) -> None:
    """Give problem documents their own media type; FastAPI knows the route's only."""
    for path in document["paths"].values():
        for operation in path.values():
            for answer in operation.get("responses", {}).values():
                if problems.MEDIA_TYPE in answer.get("content", {}):
                    answer["content"] = {problems.MEDIA_TYPE: {"schema": PROBLEM}}
