"""The coordinator's view of the process that serves torch's stores."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

from launchers.loop import Loop


class StoreProcess:
    """Starts it, and always has the port of a store that nobody used yet.

    ``port`` is None until there is one, and once the process is gone.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.port: int | None = None
        self._socket: socket.socket | None = None

    def begin(self, action: Callable[[], None]) -> None:
        """Start it, and call ``action`` whenever there is a fresh store."""
        own, other = socket.socketpair()
        words = [sys.executable, "-I", "-m", "launchers.store", str(other.fileno())]
        with other:
            subprocess.Popen(
                words,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = own
        self._loop.watch(own, lambda: self._spoke(own, action))

    def take(self) -> int | None:
        """Return the port of the fresh store, and have another one made.

        None where there is none: let rank 0 serve one.
        """
        port, self.port = self.port, None
        if port is not None and self._socket is not None:
            try:
                self._socket.sendall(b"+")
            except OSError:  # it is gone: the next start does without
                self._socket = None
        return port

    def _spoke(self, own: socket.socket, action: Callable[[], None]) -> None:
        try:
            words = own.recv(64)
        except OSError:
            words = b""
        if words:
            self.port = int(words)
            action()
        else:
            self._loop.forget(own)
            self.port = self._socket = None
