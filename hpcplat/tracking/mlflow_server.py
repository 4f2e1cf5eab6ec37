"""MLflow's REST API on a node's loopback address, for the ranks of one job.

Scripts that log to MLflow need no change and no service: what they log lies in the run
folder. Whoever has not the job's own token is refused.
"""

from __future__ import annotations

import hmac
import json
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from hpcplat.foreign import read_object
from hpcplat.tracking.mlflow_api import Answer, answer
from hpcplat.tracking.mlflow_store import MlflowStore

logger = logging.getLogger(__name__)

LARGEST_BODY: Final = 32 * 1024 * 1024  # bytes: a batch has 1,000 metrics at most
PREFIXES: Final = ("/api/2.0/mlflow/", "/api/3.0/mlflow/")


class MlflowServer:
    """Answers on a socket that listens already, from threads of its own."""

    def __init__(self, listener: socket.socket, token: str, store: MlflowStore) -> None:
        self._store = store
        self._server = ThreadingHTTPServer(
            listener.getsockname(), _Handler, bind_and_activate=False
        )
        self._server.socket.close()
        self._server.socket = listener
        self._server.daemon_threads = True
        _Handler.store, _Handler.token = store, token  # one server a process
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and write what waits."""
        self._server.shutdown()
        self._server.server_close()
        self._store.close()


class _Handler(BaseHTTPRequestHandler):
    store: MlflowStore
    token: str
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            self.close_connection = True
            self._send(_refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Too large."))
            return
        body = self.rfile.read(int(length))
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            self._send(
                _refused(HTTPStatus.UNAUTHORIZED, "This is another job's MLflow.")
            )
        elif parts.path in ("/health", "/version"):
            self._send_text("3.0.0" if parts.path == "/version" else "OK")
        else:
            self._send(self._answer(parts.path, _words(parts.query, body)))

    do_GET = do_POST = do_PATCH = _handle

    def _answer(self, path: str, words: dict[str, Any] | None) -> Answer:
        prefix = next((p for p in PREFIXES if path.startswith(p)), None)
        if prefix is None or words is None:
            return _refused(
                HTTPStatus.NOT_FOUND, f"{path} is not MLflow's, or no JSON."
            )
        try:
            return answer(self.store, self.command, path.removeprefix(prefix), words)
        except OSError as error:  # the run folder is full or gone: the client is told
            return _refused(HTTPStatus.INSUFFICIENT_STORAGE, str(error))

    def _send(self, found: Answer) -> None:
        self._send_bytes(
            json.dumps(found.body).encode(), "application/json", found.status
        )

    def _send_text(self, text: str) -> None:
        self._send_bytes(text.encode(), "text/plain", HTTPStatus.OK)

    def _send_bytes(self, body: bytes, kind: str, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: ANN401
        """Say nothing of each call."""


def _words(query: str, body: bytes) -> dict[str, Any] | None:
    """Return the query's words and the JSON body's in one; None if it is no JSON."""
    words: dict[str, Any] = {k: v[0] for k, v in parse_qs(query).items()}
    if not body:
        return words
    given = read_object(body)
    return None if given is None else {**words, **given}


def _refused(status: int, what: str) -> Answer:
    return Answer(status, {"error_code": "PERMISSION_DENIED", "message": what})
