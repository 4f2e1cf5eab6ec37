"""Errors as RFC 9457 problem documents: the one place that maps them to HTTP."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from hpcplat.errors import (
    ConflictError,
    ForbiddenError,
    HpcplatError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from hpcplat.jobs import SpecError
from hpcplat.jobs.complaints import in_words
from server.auth import UnauthenticatedError
from server.auth_rates import TooManyError
from server.people import workspaces
from server.schemas import Invalid, Problem

logger = logging.getLogger("hpcplat.server")

MEDIA_TYPE: Final = "application/problem+json"
LARGEST_BODY: Final = 1024 * 1024 + 64 * 1024  # a spec of 1 MiB, and what is around it


class FieldsError(InvalidError):
    """Several fields of a request are wrong."""

    def __init__(self, errors: Sequence[Invalid]) -> None:
        first = errors[0]
        super().__init__(f"{first.field}: {first.detail}", first.remedy)
        self.errors = errors


class TooLargeError(InvalidError):
    """A request's body is larger than the service takes."""


class RefusedJobError(InvalidError):
    """A job was written down, and then refused by Slurm."""

    def __init__(self, what: str, job_id: str) -> None:
        super().__init__(what, "Change the request, and submit it again.")
        self.job_id = job_id


# The nearest class in an error's ancestry counts.
STATUS: Final[Mapping[type[HpcplatError], HTTPStatus]] = {
    UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
    ForbiddenError: HTTPStatus.FORBIDDEN,
    NotFoundError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    InvalidError: HTTPStatus.UNPROCESSABLE_ENTITY,
    UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    TooManyError: HTTPStatus.TOO_MANY_REQUESTS,
    HpcplatError: HTTPStatus.BAD_REQUEST,
}
TITLES: Final[Mapping[int, tuple[str, str]]] = {
    400: ("bad-request", "The request can't be read"),
    401: ("unauthenticated", "Nobody knows who asks"),
    403: ("forbidden", "You may not do this"),
    404: ("not-found", "It is not there"),
    405: ("not-allowed", "This can't be done here"),
    409: ("conflict", "Its state does not allow this"),
    413: ("too-large", "The request is too large"),
    422: ("invalid", "The request can't be right"),
    429: ("too-many", "You ask too often"),
    500: ("fault", "hpcplat failed"),
    503: ("unavailable", "Something that is needed does not answer"),
}


def problem_of(error: HpcplatError) -> Problem:
    """Return the problem document of an error that a person can mend."""
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return _problem(
        status,
        error.what,
        error.remedy,
        errors=list(_fields(error)),
        job_id=error.job_id if isinstance(error, RefusedJobError) else None,
    )


def install(app: FastAPI) -> None:
    """Make the app answer every error with a problem document."""
    app.add_exception_handler(HpcplatError, _on_mendable)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(OperationalError, _on_database)
    app.add_exception_handler(Exception, _on_fault)


def response(problem: Problem) -> Response:
    """Return a problem as an HTTP response."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    content = problem.model_dump(exclude_defaults=True)
    return JSONResponse(content, problem.status, headers, media_type=MEDIA_TYPE)


def too_large(limit: int) -> TooLargeError:
    """Return the error for a body above ``limit`` bytes."""
    return TooLargeError(
        f"The request is larger than {limit // 1024} KiB.",
        "Keep data in files, and name them.",
    )


def _fields(error: HpcplatError) -> Sequence[Invalid]:
    if isinstance(error, FieldsError):
        return error.errors
    if isinstance(error, SpecError):
        return [
            Invalid(field=f"spec.{c.field}".rstrip("."), detail=c.what, remedy=c.remedy)
            for c in error.complaints
        ]
    return ()


def _problem(
    status: int,
    detail: str,
    remedy: str = "",
    errors: list[Invalid] | None = None,
    job_id: str | None = None,
) -> Problem:
    slug, title = TITLES.get(status, ("http", HTTPStatus(status).phrase))
    return Problem(
        type=f"urn:hpcplat:{slug}",
        title=title,
        status=status,
        detail=detail,
        remedy=remedy,
        errors=errors or [],
        job_id=job_id,
    )


def _on_mendable(request: Request, error: Exception) -> Response:
    assert isinstance(error, HpcplatError)
    if isinstance(error, ForbiddenError | UnauthenticatedError):
        _record_refusal(request, error)
    answer = response(problem_of(error))
    if isinstance(error, TooManyError):
        answer.headers["Retry-After"] = str(math.ceil(error.wait))
    return answer


def _record_refusal(request: Request, error: HpcplatError) -> None:
    """Write down who was refused what; whom nobody knows goes to the log alone."""
    source = request.client.host if request.client else "unix"
    what = f"{request.method} {request.url.path}"
    principal = getattr(request.state, "principal", None)
    if principal is None:
        logger.warning("%s from %s: %s", what, source, error.what)
        return
    database = request.app.state.service.database
    workspaces.recorded_refusal(database, principal, source, what, error.what)


def _on_validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [_invalid(detail) for detail in error.errors()]
    return response(problem_of(FieldsError(errors)))


def _invalid(detail: ErrorDetails) -> Invalid:
    place, *path = detail["loc"]
    field = ".".join(map(str, path)) or str(place)
    what, remedy = in_words(detail)
    return Invalid(
        field=field, detail=what, remedy=remedy or f"See the API's {place} fields."
    )


def _on_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = response(_problem(error.status_code, str(error.detail)))
    answer.headers.update(error.headers or {})
    return answer


def _on_database(_request: Request, error: Exception) -> Response:
    logger.error("the database does not answer: %s", error)
    return response(
        _problem(503, "The database does not answer.", "Try again in a while.")
    )


def _on_fault(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return response(
        _problem(500, "This is a fault of hpcplat.", "Please report it, with the log.")
    )
