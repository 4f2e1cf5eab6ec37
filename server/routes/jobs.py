"""/api/v1/jobs: submit, see, cancel, requeue."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response

from server import actions, intake
from server.auth import Principal
from server.dependencies import Asking, Body, BulkBody, Seeing, Serving
from server.intake import Accepted, Admitted
from server.problems import LARGEST_BODY, RefusedJobError
from server.queries import jobs
from server.queries.jobs import Filters, Scope
from server.schemas import (
    AttemptList,
    BulkAnswer,
    BulkRequest,
    DryRun,
    JobAnswer,
    JobDetails,
    JobPage,
    JobRequest,
    Outlook,
)
from server.service import Service
from server.states import State

router = APIRouter(prefix="/jobs", tags=["jobs"])

LONGEST_WAIT: Final = 120.0
SLOWEST_LOOK: Final = 0.25  # seconds

JobId = Annotated[
    str,
    Path(
        min_length=4,
        max_length=16,
        pattern="^[0-9a-z]+$",
        description="A job's id, or a beginning of it that only one job has.",
        examples=["01k9x3v7q4m2c8ra"],
    ),
]
Task = Annotated[int | None, Query(ge=0, le=10_000_000, description="An array task.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key with the same body makes no second job.",
    ),
]
Wait = Annotated[
    float,
    Query(
        ge=0,
        le=LONGEST_WAIT,
        description="Seconds to wait until Slurm has taken or refused the job.",
    ),
]
BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/JobRequest"}}
        },
    }
}
BULK_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/BulkRequest"}}
        },
    }
}
SCHEMAS: Final = (JobRequest, BulkRequest)  # read by hand, so told to OpenAPI by hand


@router.post(
    "",
    status_code=201,
    summary="Submit a job",
    response_model=JobAnswer,
    openapi_extra=BODY,
    responses={
        200: {"model": JobAnswer | DryRun, "description": "Made before, or a dry run."}
    },
)
async def submit(  # noqa: PLR0913 - the query's fields
    serving: Serving,
    asking: Asking,
    seeing: Seeing,
    content: Body,
    *,
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[
        bool, Query(description="Only show what would be done.")
    ] = False,
    wait: Wait = 0,
) -> Response:
    """Write the job down and have it submitted.

    The job is QUEUED in the answer unless you `wait`; with `wait`, a refusal by Slurm
    is answered as a problem (422) that names the job.
    """
    if dry_run:
        shown = await run_in_threadpool(_shown, serving, asking, content)
        return _json(shown, 200)
    # In one thread, all at once: to hand over to a thread costs as much as a look.
    accepted, answer = await run_in_threadpool(
        _submitted, serving, asking, seeing, content, idempotency_key
    )
    if wait or not serving.is_running:
        answer = await _settled(serving, seeing, accepted, wait)
    headers = {"Location": f"/api/v1/jobs/{accepted.job_id}"}
    if accepted.is_replay:
        headers["Idempotency-Replayed"] = "true"
    return _json(answer, 200 if accepted.is_replay else 201, headers)


@router.post(
    "/bulk",
    status_code=201,
    summary="Submit many jobs",
    openapi_extra=BULK_BODY,
    response_model=BulkAnswer,
)
def submit_many(
    serving: Serving,
    asking: Asking,
    seeing: Seeing,
    content: BulkBody,
    *,
    idempotency_key: IdempotencyKey = None,
) -> BulkAnswer:
    """Write many jobs down, all or none, and have them submitted."""
    bulk = intake.read_bulk(content, 16 * LARGEST_BODY)
    requests = [intake.admitted(serving, asking, request) for request in bulk.jobs]
    accepted = intake.accept(serving, asking, seeing, requests, idempotency_key)
    return BulkAnswer(ids=[one.job_id for one in accepted])


@router.get("", summary="List jobs")
def list_jobs(  # noqa: PLR0913 - the query's fields
    serving: Serving,
    seeing: Seeing,
    *,
    state: Annotated[list[State] | None, Query(description="Any of these.")] = None,
    workspace: Annotated[str | None, Query(max_length=255)] = None,
    user: Annotated[str | None, Query(max_length=255)] = None,
    name: Annotated[str | None, Query(max_length=255)] = None,
    kind: Annotated[str | None, Query(max_length=32)] = None,
    since: Annotated[datetime | None, Query(description="Made since then.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[
        str | None, Query(pattern="^[0-9a-z]{16}$", description="From the page before.")
    ] = None,
) -> JobPage:
    """Return jobs that you may see, newest first."""
    serving.refresh()
    filters = Filters(
        states=tuple(state or ()),
        workspace=workspace,
        user=user,
        name=name,
        kind=kind,
        since=actions.aware(since),
    )
    with serving.database.read() as session:
        found = jobs.listed(session, seeing, filters, cursor, limit + 1)
    page = [actions.job_answer(named) for named in found[:limit]]
    more = page[-1].id if len(found) > limit else None
    return JobPage(jobs=page, next_cursor=more)


@router.get("/{job_id}", summary="See a job")
async def see(serving: Serving, seeing: Seeing, job_id: JobId) -> JobDetails:
    """Return a job with its spec."""

    def look() -> JobDetails:
        serving.refresh()
        with serving.database.read() as session:
            return actions.job_details(jobs.find(session, seeing, job_id))

    # What is asked most. SQLite answers sooner than another thread could begin to.
    is_quick = serving.is_running and serving.database.is_sqlite
    return look() if is_quick else await run_in_threadpool(look)


@router.post("/{job_id}/cancel", status_code=202, summary="Cancel a job")
def cancel(
    serving: Serving, asking: Asking, seeing: Seeing, job_id: JobId, task: Task = None
) -> JobAnswer:
    """Cancel a job, or one task of an array.

    While Slurm does not answer, the wish is kept and carried out when it does.
    """
    return actions.cancel(serving, asking, seeing, job_id, task)


@router.post("/{job_id}/requeue", status_code=202, summary="Requeue a job")
def requeue(
    serving: Serving, asking: Asking, seeing: Seeing, job_id: JobId, task: Task = None
) -> JobAnswer:
    """Put a job, or one task of an array, back into Slurm's queue."""
    return actions.requeue(serving, asking, seeing, job_id, task)


@router.get("/{job_id}/outlook", summary="See what a job waits for")
def outlook(serving: Serving, seeing: Seeing, job_id: JobId) -> Outlook:
    """Return why the job waits, the limits it is over, its place and expected start."""
    return actions.outlook(serving, seeing, job_id)


@router.get("/{job_id}/attempts", summary="See a job's starts")
def attempts(
    serving: Serving, seeing: Seeing, job_id: JobId, task: Task = None
) -> AttemptList:
    """Return each start of the job under Slurm, oldest first."""
    serving.refresh()
    with serving.database.read() as session:
        found = jobs.find(session, seeing, job_id).job
        rows = jobs.attempts_of(session, found.id, task)
    return AttemptList(attempts=[actions.attempt_answer(row) for row in rows])


@router.get(
    "/{job_id}/script",
    summary="See the batch script",
    response_class=PlainTextResponse,
)
def script(serving: Serving, seeing: Seeing, job_id: JobId) -> str:
    """Return the batch script, the very text that sbatch got."""
    with serving.database.read() as session:
        found = jobs.find(session, seeing, job_id).job
    return actions.script_of(found)


def _shown(serving: Service, asking: Principal, content: bytes) -> DryRun:
    return actions.dry_run(serving, asking, _admitted(serving, asking, content))


def _submitted(
    serving: Service,
    asking: Principal,
    seeing: Scope,
    content: bytes,
    idempotency_key: str | None,
) -> tuple[Accepted, JobAnswer]:
    request = _admitted(serving, asking, content)
    [accepted] = intake.accept(serving, asking, seeing, [request], idempotency_key)
    if accepted.made is None:
        return accepted, _current(serving, seeing, accepted.job_id)
    return accepted, actions.answer_of_made(accepted.made)


def _admitted(serving: Service, asking: Principal, content: bytes) -> Admitted:
    return intake.admitted(serving, asking, intake.read_request(content))


async def _settled(
    serving: Service, seeing: Scope, accepted: Accepted, wait: float
) -> JobAnswer:
    """Return the job, when Slurm has taken it or the time is over."""
    if not serving.is_running:
        await run_in_threadpool(serving.refresh, at_once=True)
    loop = asyncio.get_running_loop()
    end = loop.time() + wait
    news = asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(news.set)

    serving.submitter.waiters.add(accepted.job_id, wake)
    try:
        while True:
            news.clear()
            answer = await run_in_threadpool(_current, serving, seeing, accepted.job_id)
            if wait and answer.is_final and answer.slurm_job_id is None:
                raise RefusedJobError(answer.reason, answer.id)
            is_open = answer.state in {State.QUEUED, State.SUBMITTING}
            if not is_open or loop.time() >= end:
                return answer
            # Another service on the same database may submit it: so look by oneself too.
            with contextlib.suppress(TimeoutError):
                left = min(SLOWEST_LOOK, max(end - loop.time(), 0))
                await asyncio.wait_for(news.wait(), left)
            await run_in_threadpool(serving.refresh)
    finally:
        serving.submitter.waiters.remove(accepted.job_id, wake)


def _current(serving: Service, seeing: Scope, job_id: str) -> JobAnswer:
    with serving.database.read() as session:
        return actions.job_answer(jobs.find(session, seeing, job_id))


def _json(
    answer: JobAnswer | DryRun, status: int, headers: dict[str, str] | None = None
) -> Response:
    return Response(answer.model_dump_json(), status, headers, "application/json")
