"""The HTTP client: the same calls to a site's service, a Unix socket, or this process.

All of the command line speaks to the API through this class; nothing else does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from hpcplat.embedding import EmbeddedTransport, load_app
from hpcplat.errors import (
    ConflictError,
    ForbiddenError,
    HpcplatError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from hpcplat.munge import credential
from hpcplat.settings import Settings

PREFIX: Final = "/api/v1"
STREAM_SILENCE: Final = 60.0  # seconds; the service says every 15 that it lives

ERRORS: Final[Mapping[int, type[HpcplatError]]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidError,
    422: InvalidError,
    429: UnavailableError,
    503: UnavailableError,
}


class ServiceFaultError(Exception):
    """The service failed in a way that nobody foresaw: a bug of ours."""


class RefusedError(InvalidError):
    """The service refused a request; ``errors`` has (field, what, remedy) of each."""

    def __init__(
        self,
        what: str,
        remedy: str,
        errors: Sequence[tuple[str, str, str]],
        job_id: str | None,
    ) -> None:
        super().__init__(what, remedy)
        self.errors = tuple(errors)
        self.job_id = job_id


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One message of a stream."""

    kind: str
    data: str
    id: str


class Client:
    """The API as methods; answers are plain values as the API's reference has them.

    Raises HpcplatError's subclasses with the service's own words and remedies, and
    UnavailableError when it does not answer.
    """

    def __init__(self, http: httpx.Client, where: str = "") -> None:
        """Speak through ``http``; ``where`` is the service's name for people."""
        self._http = http
        self._where = where or str(http.base_url)

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes the connection."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection (and end an embedded service)."""
        self.close()

    def close(self) -> None:
        """Close the connection (and end an embedded service)."""
        self._http.close()

    def submit(
        self,
        spec: Mapping[str, Any],
        *,
        secrets: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        wait: float = 0,
    ) -> dict[str, Any]:
        """Submit a job; returns it. ``wait``: seconds until Slurm has taken it."""
        return self._mapping(
            "POST",
            "/jobs",
            json={"spec": dict(spec), "secrets": dict(secrets or {})},
            params={"wait": wait} if wait else None,
            headers=_key(idempotency_key),
            timeout=_longer(self._http.timeout, wait),
        )

    def dry_run(
        self, spec: Mapping[str, Any], *, secrets: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return what would be submitted: script, folder, expected_start."""
        return self._mapping(
            "POST",
            "/jobs",
            json={"spec": dict(spec), "secrets": dict(secrets or {})},
            params={"dry_run": True},
        )

    def submit_many(
        self,
        specs: Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Submit many jobs, all or none; returns their ids in order."""
        answer = self._mapping(
            "POST",
            "/jobs/bulk",
            json={"jobs": [{"spec": dict(spec)} for spec in specs]},
            headers=_key(idempotency_key),
        )
        return [str(job_id) for job_id in answer["ids"]]

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job by its id, or an unambiguous beginning of it."""
        return self._mapping("GET", _job(job_id))

    def jobs(self, limit: int = 100, **filters: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return the newest jobs, at most ``limit``; filters as the API has them."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while len(found) < limit:
            params = {**filters, "limit": min(limit - len(found), 1000)}
            if cursor is not None:
                params["cursor"] = cursor
            page = self._mapping("GET", "/jobs", params=params)
            found.extend(page["jobs"])
            cursor = page["next_cursor"]
            if cursor is None:
                break
        return found

    def cancel(self, job_id: str, task: int | None = None) -> dict[str, Any]:
        """Cancel a job or an array task."""
        return self._mapping("POST", f"{_job(job_id)}/cancel", params=_task(task))

    def requeue(self, job_id: str, task: int | None = None) -> dict[str, Any]:
        """Put a job or an array task back into the queue."""
        return self._mapping("POST", f"{_job(job_id)}/requeue", params=_task(task))

    def attempts(self, job_id: str, task: int | None = None) -> list[dict[str, Any]]:
        """Return the job's starts, oldest first."""
        path = f"{_job(job_id)}/attempts"
        return list(self._mapping("GET", path, params=_task(task))["attempts"])

    def events(self, job_id: str, after: int = 0) -> list[dict[str, Any]]:
        """Return the job's history after an event's number."""
        path = f"{_job(job_id)}/events"
        return list(self._mapping("GET", path, params={"after": after})["events"])

    def follow_events(
        self, job_id: str, last_id: str | None = None
    ) -> Generator[ServerSentEvent, None, None]:
        """Yield the job's history as it happens, to its end (kind ``end``)."""
        return self._stream(f"{_job(job_id)}/events", {}, last_id)

    def outlook(self, job_id: str) -> dict[str, Any]:
        """Return what a job waits for: limits, place, fair share, expected start."""
        return self._mapping("GET", f"{_job(job_id)}/outlook")

    def workspaces(self) -> list[dict[str, Any]]:
        """Return the workspaces that you may see."""
        return list(self._mapping("GET", "/workspaces")["workspaces"])

    def workspace(self, name: str) -> dict[str, Any]:
        """Return a workspace with its members and quotas."""
        return self._mapping("GET", f"/workspaces/{quote(name, safe='')}")

    def make_workspace(
        self, name: str, account: str | None = None, parent: str | None = None
    ) -> dict[str, Any]:
        """Make a workspace; administrators alone."""
        asked = {"name": name, "account": account, "parent": parent}
        return self._mapping("POST", "/workspaces", json=asked)

    def close_workspace(self, name: str) -> None:
        """Close a workspace without live jobs; administrators alone."""
        self._request("DELETE", f"/workspaces/{quote(name, safe='')}")

    def set_member(self, workspace: str, user: str, role: str) -> dict[str, Any]:
        """Put somebody into a workspace, or give a member another role."""
        path = f"/workspaces/{quote(workspace, safe='')}/members/{quote(user, safe='')}"
        return self._mapping("PUT", path, json={"role": role})

    def remove_member(self, workspace: str, user: str) -> None:
        """Take somebody out of a workspace."""
        path = f"/workspaces/{quote(workspace, safe='')}/members/{quote(user, safe='')}"
        self._request("DELETE", path)

    def audit(self, **filters: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return who did what, newest first (workspace=, limit=, before=)."""
        return list(self._mapping("GET", "/audit", params=filters)["entries"])

    def quotas(self, workspace: str | None = None) -> dict[str, Any]:
        """Return what Slurm allows you, or a workspace: limits, use, shares."""
        params = {"workspace": workspace} if workspace else None
        return self._mapping("GET", "/quotas", params=params)

    def set_quota(
        self, workspace: str, limits: Mapping[str, str], user: str = ""
    ) -> dict[str, Any]:
        """Set what a workspace, or one member of it, may have."""
        path = f"/workspaces/{quote(workspace, safe='')}/quota"
        asked = {"user": user, "limits": dict(limits)}
        return self._mapping("PUT", path, json=asked)

    def sync(self, *, write: bool = False, adopt: bool = False) -> dict[str, Any]:
        """Compare workspaces with Slurm's accounts; change one side if told to."""
        params = {"write": write, "adopt": adopt}
        return self._mapping("POST", "/admin/sync", params=params)

    def usage(self, since: str, until: str | None = None) -> dict[str, Any]:
        """Return GPU-hours by workspace, member and project."""
        params = {"since": since} | ({"until": until} if until else {})
        return self._mapping("GET", "/usage", params=params)

    def logs(self, job_id: str, **where: Any) -> str:  # noqa: ANN401
        """Return a log (attempt=, rank=, batch=, task=, tail=)."""
        return self._request("GET", f"{_job(job_id)}/logs", params=where).text

    def follow_logs(
        self,
        job_id: str,
        last_id: str | None = None,
        **where: Any,  # noqa: ANN401
    ) -> Generator[ServerSentEvent, None, None]:
        """Yield pieces of a log as they come, to the job's end (kind ``end``)."""
        return self._stream(f"{_job(job_id)}/logs", where, last_id)

    def script(self, job_id: str) -> str:
        """Return the batch script that was submitted."""
        return self._request("GET", f"{_job(job_id)}/script").text

    def adopt(self, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Tell what sbatch submitted; returns job or refusal for each, in order."""
        answer = self._mapping("POST", "/sbatch", json={"calls": list(calls)})
        return list(answer["calls"])

    def nodes(self) -> dict[str, Any]:
        """Return the cluster's name and its nodes."""
        return self._mapping("GET", "/nodes")

    def partitions(self) -> dict[str, Any]:
        """Return the cluster's name and its partitions."""
        return self._mapping("GET", "/partitions")

    def health(self) -> dict[str, Any]:
        """Return the service's version, if it is up."""
        return self._mapping("GET", "/health")

    def ready(self) -> dict[str, Any]:
        """Return whether the service can do its work, and what is wrong if not."""
        response = self._send("GET", "/ready")
        if response.status_code not in {200, 503}:
            raise error_of(response)
        return _mapping_of(response)

    def ui_path(self, to: str = "") -> str:
        """Return a path that logs a browser in, once, and goes on to ``to``."""
        answer = self._mapping("POST", "/ui/codes", params={"to": to} if to else None)
        return str(answer["path"])

    def make_token(self, label: str = "", days: int = 30) -> dict[str, Any]:
        """Make a bearer token for yourself; ``token`` is shown this once."""
        return self._mapping("POST", "/tokens", json={"label": label, "days": days})

    def log_in_by_munge(self) -> dict[str, Any]:
        """Exchange a MUNGE credential of this process's user for a token of an hour."""
        path = "/tokens/munge"
        made = credential("POST", PREFIX + path)
        return self._mapping("POST", path, headers={"Authorization": f"MUNGE {made}"})

    def tokens(self) -> list[dict[str, Any]]:
        """Return your tokens, never their values."""
        return list(self._mapping("GET", "/tokens")["tokens"])

    def revoke_token(self, token_id: str) -> None:
        """End a token of yours."""
        self._request("DELETE", f"/tokens/{quote(token_id, safe='')}")

    def _mapping(self, method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        return _mapping_of(self._request(method, path, **options))

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        response = self._send(method, path, **options)
        if response.is_success:
            return response
        raise error_of(response)

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        given = {name: value for name, value in options.items() if value is not None}
        try:
            return self._http.request(method, PREFIX + path, **given)
        except httpx.TransportError as error:
            raise _unreachable(self._where, error) from error

    def _stream(
        self, path: str, params: Mapping[str, Any], last_id: str | None
    ) -> Generator[ServerSentEvent, None, None]:
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        timeout = httpx.Timeout(self._http.timeout.connect, read=STREAM_SILENCE)
        try:
            with self._http.stream(
                "GET", PREFIX + path, params=params, headers=headers, timeout=timeout
            ) as response:
                if not response.is_success:
                    response.read()
                    raise error_of(response)
                yield from _sse(response.iter_lines())
        except httpx.TransportError as error:
            raise _unreachable(self._where, error) from error


def connect(settings: Settings) -> Client:
    """Return a client of the service that the settings name, or of one in here."""
    timeout = httpx.Timeout(settings.timeout)
    if not settings.url:
        return Client(_embedded(settings, timeout))
    token = settings.bearer()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if settings.url.startswith("unix:"):
        transport = httpx.HTTPTransport(uds=settings.url.removeprefix("unix:"))
        return Client(
            httpx.Client(
                base_url="http://hpcplat",
                transport=transport,
                headers=headers,
                timeout=timeout,
            ),
            settings.url,
        )
    return Client(httpx.Client(base_url=settings.url, headers=headers, timeout=timeout))


def error_of(response: httpx.Response) -> Exception:
    """Return the error that an answer tells of; a bug of the service's is none of yours."""
    problem = _problem_of(response)
    detail = str(problem.get("detail") or f"HTTP {response.status_code}.")
    remedy = str(problem.get("remedy", ""))
    kind = ERRORS.get(response.status_code)
    if kind is None:
        return ServiceFaultError(f"{detail} {remedy}".strip())
    if kind is InvalidError:
        errors = [
            (
                str(e.get("field", "")),
                str(e.get("detail", "")),
                str(e.get("remedy", "")),
            )
            for e in problem.get("errors", [])
        ]
        job_id = problem.get("job_id")
        return RefusedError(detail, remedy, errors, job_id)
    return kind(detail, remedy)


def _embedded(settings: Settings, timeout: httpx.Timeout) -> httpx.Client:
    transport = EmbeddedTransport(load_app(settings), os.geteuid())
    return httpx.Client(
        base_url="http://embedded", transport=transport, timeout=timeout
    )


def _sse(lines: Iterator[str]) -> Iterator[ServerSentEvent]:
    kind, last_id = "message", ""
    data: list[str] = []
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield ServerSentEvent(kind, "\n".join(data), last_id)
            kind, data = "message", []
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            last_id = value


def _problem_of(response: httpx.Response) -> dict[str, Any]:
    try:
        problem = response.json()
    except ValueError:  # a proxy's page
        return {}
    return problem if isinstance(problem, dict) else {}


def _mapping_of(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except json.JSONDecodeError:
        answer = None
    if isinstance(answer, dict):
        return answer
    raise UnavailableError(
        f"{response.url.host} did not answer as hpcplat does.", "Check HPCPLAT_URL."
    )


def _unreachable(where: str, error: httpx.TransportError) -> UnavailableError:
    why = str(error) or type(error).__name__
    return UnavailableError(
        f"The service at {where} does not answer ({why}).",
        "See that it runs and that HPCPLAT_URL is right.",
    )


def _job(job_id: str) -> str:
    return f"/jobs/{quote(job_id, safe='')}"


def _task(task: int | None) -> dict[str, int] | None:
    return None if task is None else {"task": task}


def _key(key: str | None) -> dict[str, str] | None:
    return None if key is None else {"Idempotency-Key": key}


def _longer(timeout: httpx.Timeout, wait: float) -> httpx.Timeout:
    return httpx.Timeout(timeout.connect, read=(timeout.read or 0) + wait)
