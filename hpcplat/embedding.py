"""An ASGI app in this process as an httpx transport: the service without a server.

httpx's own ASGI transport is asynchronous and holds an answer back until it is whole;
this one is synchronous and hands each piece on as it comes, which streams need.
"""

from __future__ import annotations

import queue
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

import anyio
import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from hpcplat.errors import UnavailableError
from hpcplat.settings import Settings

GROUP: Final = "hpcplat.app"
NAME: Final = "embedded"

Message = MutableMapping[str, Any]
App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[Message]],
        Callable[[Message], Awaitable[None]],
    ],
    Awaitable[None],
]


@dataclass(frozen=True, slots=True)
class LocalPeer:
    """Who is at the other end: the user that this process runs as."""

    uid: int


def load_app(settings: Settings) -> App:
    """Return the service's app, which the library finds by its entry point.

    Raises UnavailableError if the service is not installed beside the library.
    """
    for point in entry_points(group=GROUP, name=NAME):
        try:
            app: App = point.load()(settings)
        except ImportError as error:
            raise UnavailableError(
                f"The service can't be loaded ({error}).",
                "pip install 'hpcplat[server]'",
            ) from error
        return app
    raise UnavailableError(
        "No service is configured, and none is installed here.",
        "Set HPCPLAT_URL, or pip install 'hpcplat[server]'.",
    )


class EmbeddedTransport(httpx.BaseTransport):
    """Sends requests to an ASGI app that runs on a thread of this process."""

    def __init__(self, app: App, uid: int) -> None:
        self._app = app
        self._state: dict[str, Any] = {}
        self._uid = uid
        self._stack = ExitStack()
        self._portal: BlockingPortal = self._stack.enter_context(
            start_blocking_portal(backend="asyncio")
        )
        try:
            self._stack.enter_context(
                self._portal.wrap_async_context_manager(_Lifespan(app, self._state))
            )
        except BaseException:  # the app did not start: its thread must not stay
            self._stack.close()
            raise

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Hand a request to the app; returns as soon as the answer begins."""
        return self.handle_request_of(request, self._uid)

    def handle_request_of(
        self, request: httpx.Request, uid: int | None
    ) -> httpx.Response:
        """Hand a request to the app as that Unix user's; None: nobody says whose."""
        exchange = _Exchange(request.read())
        peer = {} if uid is None else {"peer": LocalPeer(uid)}
        scope = _scope(request, {**self._state, **peer})
        running = self._portal.start_task_soon(exchange.run, self._app, scope)
        start = exchange.next(running)
        if start is None:
            raise UnavailableError("The service gave no answer.", "See its log.")
        return httpx.Response(
            start["status"],
            headers=start.get("headers", []),
            stream=_Body(exchange, running, self._portal),
        )

    def close(self) -> None:
        """Stop the app and its thread."""
        self._stack.close()


class _Exchange:
    """One request and its answer, between this thread and the app's."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self.gone: anyio.Event | None = None

    async def run(self, app: App, scope: dict[str, Any]) -> None:
        self.gone = anyio.Event()
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._answers.put(None)

    def next(self, running: Future[None]) -> Message | None:
        """Return the app's next message; raises what the app raised."""
        message = self._answers.get()
        if message is None:
            running.result()
        return message

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self.gone is not None:
            await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._answers.put(message)


class _Body(httpx.SyncByteStream):
    def __init__(
        self, exchange: _Exchange, running: Future[None], portal: BlockingPortal
    ) -> None:
        self._exchange = exchange
        self._running = running
        self._portal = portal

    def __iter__(self) -> Iterator[bytes]:
        while (message := self._exchange.next(self._running)) is not None:
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                return

    def close(self) -> None:
        """Tell the app that nobody listens any more."""
        if self._exchange.gone is not None and not self._running.done():
            self._portal.call(self._exchange.gone.set)


class _Lifespan:
    """Starts an app and stops it again, as ASGI's lifespan protocol has it."""

    def __init__(self, app: App, state: dict[str, Any]) -> None:
        self._app = app
        self._scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": state,
        }

    async def __aenter__(self) -> None:
        self._to_app = anyio.create_memory_object_stream[Message](2)
        self._from_app = anyio.create_memory_object_stream[Message](2)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)
        await self._to_app[0].send({"type": "lifespan.startup"})
        answer = await self._from_app[1].receive()
        if answer["type"] != "lifespan.startup.complete":
            await self._end()
            raise UnavailableError("The service did not start.", "See its log.")

    async def _run(self) -> None:
        await self._app(self._scope, self._to_app[1].receive, self._from_app[0].send)

    async def __aexit__(self, *error: object) -> None:
        await self._to_app[0].send({"type": "lifespan.shutdown"})
        await self._from_app[1].receive()
        await self._end()

    async def _end(self) -> None:
        await self._tasks.__aexit__(None, None, None)
        for stream in (*self._to_app, *self._from_app):
            stream.close()


def _scope(request: httpx.Request, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": None,
        "server": ("embedded", None),
        "state": state,
    }
