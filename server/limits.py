"""ASGI middleware: the time of each answer, and headers that each one carries."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.metrics import Metrics

_Header = tuple[bytes, bytes]
HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"frame-ancestors 'self'"),
)
PRIVATE: Final = (b"cache-control", b"no-store")  # answers of the API are of one person


def _added(path: str, headers: Iterable[tuple[bytes, bytes]]) -> list[_Header]:
    """Return the headers with ours, none of them twice."""
    there = {name.lower() for name, _ in headers}
    ours = (*HEADERS, PRIVATE) if path.startswith("/api/") else HEADERS
    return [*headers, *(each for each in ours if each[0] not in there)]


class Observed:
    """Measures requests by the route's template, so that ids make no new series."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and note how it went."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = "500"

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
                headers = _added(scope["path"], list(message["headers"]))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.requests.labels(scope["method"], route, status).observe(
                time.perf_counter() - started
            )
