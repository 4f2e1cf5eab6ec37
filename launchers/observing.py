"""The observer beside an agent: node metrics, TensorBoard and MLflow, the record.

It is a process of its own, and unimportant: nothing waits for it but its own end.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from hpcplat.allocation import NodePlace
from launchers import arguments, children

END_SECONDS: Final = 2.0  # to copy what was written last
MLFLOW_URI: Final = "MLFLOW_TRACKING_URI"


class Observer:
    """The observer of one node, and where ranks reach its MLflow endpoint."""

    def __init__(self, place: arguments.Arguments, node: NodePlace) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._token = secrets.token_urlsafe(24)
        words = [sys.executable, "-I", "-m", "hpcplat.tracking.observer"]
        words += [str(place.run.root), "--attempt", str(place.attempt)]
        words += ["--node", node.node, *["--first"] * (node.node_index == 0)]
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None

    def offered(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables by which MLflow finds us; none where it has a server.

        An observer that died must not hold a training up: few and short tries.
        """
        if MLFLOW_URI in environ:
            return {}
        host, port = self._listener.getsockname()
        return {
            MLFLOW_URI: f"http://{host}:{port}",
            "MLFLOW_TRACKING_TOKEN": self._token,
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        }

    def start(self) -> None:
        """Start it; the socket and the token are handed on, and ours no more."""
        reading, writing = os.pipe()
        os.write(writing, self._token.encode())
        os.close(writing)
        keep = (self._listener.fileno(), reading)
        words = [*self._words, "--mlflow", *map(str, keep)]
        self._process = children.start_below(words, keep)
        os.close(reading)
        self._listener.close()

    def end(self) -> None:
        """Let it copy the last values; one that takes long is killed by the agent."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return
