"""/api/v1/jobs/{id}/events and /logs: as they are, or followed as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from hpcplat.errors import UnavailableError
from server import following
from server.dependencies import Seeing, Serving
from server.following import LogPlace, Message
from server.queries import events, jobs
from server.queries.jobs import Scope
from server.routes.jobs import JobId, Task
from server.schemas import EventAnswer, EventPage
from server.service import Service
from server.states import FINAL

router = APIRouter(prefix="/jobs", tags=["jobs"])

STREAM: Final = "text/event-stream"
LOOK: Final = 0.5  # seconds between looks for something new
ALIVE: Final = 15.0  # seconds after which a silent stream says that it lives

LastEventId = Annotated[
    str | None,
    Header(
        max_length=64,
        pattern="^[0-9:-]+$",
        description="Go on after this message of an earlier stream.",
    ),
]
STREAMS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {STREAM: {"schema": {"type": "string"}}},
        "description": "At once; or followed, if you accept text/event-stream.",
    }
}


@router.get(
    "/{job_id}/events",
    summary="See a job's history",
    responses=STREAMS,
    response_model=EventPage,
)
async def job_events(  # noqa: PLR0913 - the query's fields
    request: Request,
    serving: Serving,
    seeing: Seeing,
    job_id: JobId,
    *,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    last_event_id: LastEventId = None,
) -> EventPage | Response:
    """Return each change of the job with its reason, oldest first."""
    page = await run_in_threadpool(_page, serving, seeing, job_id, after, limit)
    if STREAM not in request.headers.get("accept", ""):
        return page
    start = max(after, following.number(last_event_id))
    return _stream(request, _events(serving, seeing, job_id, start))


@router.get(
    "/{job_id}/logs",
    summary="See what a job prints",
    responses=STREAMS,
    response_class=PlainTextResponse,
)
async def job_logs(  # noqa: PLR0913 - the query's fields
    request: Request,
    serving: Serving,
    seeing: Seeing,
    job_id: JobId,
    *,
    attempt: Annotated[
        int | None, Query(ge=1, le=10_000, description="The newest if not given.")
    ] = None,
    rank: Annotated[int, Query(ge=0, le=1_000_000, description="Which rank's.")] = 0,
    batch: Annotated[
        bool, Query(description="The batch script's own log, not a rank's.")
    ] = False,
    task: Task = None,
    tail: Annotated[
        int | None, Query(ge=0, le=100_000, description="Only the last lines.")
    ] = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Return a log as text (at most 256 KiB of its end), or follow it."""
    place = LogPlace(attempt, None if batch else rank, task)
    if STREAM in request.headers.get("accept", ""):
        lines = _logs(serving, seeing, job_id, place, tail, last_event_id)
        await run_in_threadpool(_find, serving, seeing, job_id)
        return _stream(request, lines)
    text = await run_in_threadpool(_log, serving, seeing, job_id, place, tail)
    return PlainTextResponse(text)


def _page(
    serving: Service, seeing: Scope, job_id: str, after: int, limit: int
) -> EventPage:
    serving.refresh()
    with serving.database.read() as session:
        job = jobs.find(session, seeing, job_id).job
        rows = events.of_job(session, job.id, after, limit)
    return EventPage(
        events=[EventAnswer.model_validate(row) for row in rows],
        is_final=job.state in FINAL,
    )


def _find(serving: Service, seeing: Scope, job_id: str) -> following.Followed:
    serving.refresh()
    with serving.database.read() as session:
        job = jobs.find(session, seeing, job_id).job
    return following.Followed(job.folder, job.state, job.reason, job.state in FINAL)


def _log(
    serving: Service, seeing: Scope, job_id: str, place: LogPlace, tail: int | None
) -> str:
    return following.whole(_find(serving, seeing, job_id), place, tail)


async def _events(
    serving: Service, seeing: Scope, job_id: str, after: int
) -> AsyncIterator[Message | None]:
    while True:
        page = await run_in_threadpool(_page, serving, seeing, job_id, after, 1000)
        for event in page.events:
            after = event.number
            yield Message("event", event.model_dump_json(), str(event.number))
        if page.is_final and not page.events:
            yield Message("end", "{}", str(after))
            return
        if not page.events:
            yield None


async def _logs(
    serving: Service,
    seeing: Scope,
    job_id: str,
    place: LogPlace,
    tail: int | None,
    last: str | None,
) -> AsyncIterator[Message | None]:
    cursor = following.cursor(last, place, tail)
    while True:
        job = await run_in_threadpool(_find, serving, seeing, job_id)
        step = await run_in_threadpool(following.step, job, cursor)
        cursor = step.cursor
        for message in step.messages:
            yield message
        if step.is_end:
            yield Message("end", json.dumps({"state": job.state}), cursor.spelled())
            return
        if not step.messages:
            yield None


def _stream(
    request: Request, messages: AsyncIterator[Message | None]
) -> StreamingResponse:
    return StreamingResponse(
        _spelled(request, _while_available(messages)),
        media_type=STREAM,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _while_available(
    messages: AsyncIterator[Message | None],
) -> AsyncIterator[Message | None]:
    """End where the service or its database ends: the client asks again, from there."""
    with contextlib.suppress(UnavailableError):
        async for message in messages:
            yield message


async def _spelled(
    request: Request, messages: AsyncIterator[Message | None]
) -> AsyncIterator[bytes]:
    """Spell messages as server-sent events; None is a moment without news."""
    silent = 0.0
    async for message in messages:
        if message is not None:
            silent = 0.0
            yield message.spelled()
            continue
        if await request.is_disconnected():
            return
        await asyncio.sleep(LOOK)
        silent += LOOK
        if silent >= ALIVE:
            silent = 0.0
            yield b": alive\n\n"
