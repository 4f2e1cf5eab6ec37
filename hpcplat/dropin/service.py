"""The site's service, asked with the standard library alone.

sbatch is called in loops: the time that hpcplat.client takes to load is worth saving
here, for two short requests.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from hpcplat.errors import ForbiddenError, UnavailableError
from hpcplat.settings import Settings

PATIENCE: Final = 5.0  # seconds; a job is never kept waiting for longer
PREFIX: Final = "/api/v1/sbatch"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("hpcplat", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        """Connect to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


class SiteService:
    """Satisfies tracker.Service over HTTP, HTTPS or a Unix socket."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.url
        self._token = settings.bearer()

    def announce(self, record: Mapping[str, Any]) -> None:
        """Ask whether the job may be submitted; raises ForbiddenError if it may not."""
        self._post("/announce", record)

    def report(self, record: Mapping[str, Any]) -> None:
        """Tell what became of it."""
        if record["job_id"] is not None:
            self._post("", {"calls": [record]})

    def _post(self, path: str, body: Mapping[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            connection.request("POST", PREFIX + path, json.dumps(body), headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"The service does not answer ({error}).") from error
        finally:
            connection.close()
        if status >= 300:
            raise _error(status, content)

    def _connection(self) -> http.client.HTTPConnection:
        if self._url.startswith("unix:"):
            return _UnixConnection(self._url.removeprefix("unix:"))
        parts = urlsplit(self._url)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                parts.netloc, timeout=PATIENCE, context=context
            )
        return http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)


def _error(status: int, content: bytes) -> ForbiddenError | UnavailableError:
    """Return what a refusal means: only a plain no keeps a job from being submitted."""
    try:
        problem = json.loads(content)
        what, remedy = str(problem["detail"]), str(problem.get("remedy", ""))
    except (ValueError, TypeError, KeyError):
        what, remedy = f"The service answered {status}.", ""
    if status == 403:
        return ForbiddenError(what, remedy)
    return UnavailableError(what, remedy)
