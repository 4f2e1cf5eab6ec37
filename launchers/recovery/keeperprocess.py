"""The agent's view of its node's keeper."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from launchers import children
from launchers.loop import Loop
from launchers.messages import Start
from launchers.ports import listening
from launchers.recovery.wire import Wire

Held = Sequence[tuple[int, int]]
MOST_STARTS: Final = 5  # one that dies again and again is given up


class KeeperProcess:
    """Starts the keeper; it goes with us. ``name`` is its socket's, for the ranks.

    A keeper that died is replaced by one that holds nothing, at the same name and port:
    ranks that start then come from disk, if no other node has their copies.
    """

    def __init__(self, loop: Loop, word: str) -> None:
        self._loop, self._word = loop, word
        self.name = f"hpcplat-{os.getpid()}-{secrets.token_hex(8)}"
        self._wanted: Callable[[Held], None] | None = None
        self._ranks = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ranks.bind(f"\0{self.name}")
        self._ranks.listen()
        self._keepers = listening()
        self.port: int = self._keepers.getsockname()[1]
        self._order: dict[str, Any] | None = None  # the newest
        self._starts = 0
        self._wire: Wire | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._begin()

    def start(self, order: Start) -> None:
        """Tell it of the ranks that start now."""
        self._order = {
            "kind": "start",
            "generation": order.generation,
            "resume": order.resume,
            "buddy": order.buddy or None,
            "sources": {rank: [host, port] for rank, host, port in order.sources},
            "origins": dict(
                zip(order.ranks, order.origins or order.ranks, strict=True)
            ),
        }
        self._send(self._order)

    def listing(self, action: Callable[[Held], None]) -> None:
        """Call ``action`` with what it holds, once the ranks that died are done with."""
        self._wanted = action
        self._send({"kind": "inventory"})
        self._answer_for_the_dead()

    def close(self) -> None:
        """End it."""
        self._starts = MOST_STARTS
        self._bury()
        self._gone()
        self._ranks.close()
        self._keepers.close()

    def _begin(self) -> None:
        own, other = socket.socketpair()
        self._starts += 1
        with other:
            sockets = (other, self._ranks, self._keepers)
            files = [sock.fileno() for sock in sockets]
            words = [sys.executable, "-I", "-m", "launchers.recovery.keeper"]
            self.process = children.start_below([*words, *map(str, files)], files)
        self._wire = Wire(own)
        self._loop.watch(own, self._spoke)
        self._send({"word": self._word})
        if self._order is not None:
            self._send(self._order)

    def _send(self, message: dict[str, Any]) -> None:
        if self._wire is not None:
            try:
                self._wire.send(**message)
            except OSError:
                self._replace()

    def _spoke(self) -> None:
        message = self._wire.receive() if self._wire is not None else None
        if message is None:
            self._replace()
        elif self._wanted is not None:
            action, self._wanted = self._wanted, None
            action([(rank, step) for rank, step in message["held"]])

    def _replace(self) -> None:
        """Answer for the one that died, and start another."""
        self._gone()
        self._bury()
        self._answer_for_the_dead()
        if self._starts < MOST_STARTS:
            self._begin()

    def _bury(self) -> None:
        """See that it is dead: it may only have let go of its socket."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _gone(self) -> None:
        if self._wire is not None:
            with contextlib.suppress(KeyError):
                self._loop.forget(self._wire.socket)
            self._wire.close()
            self._wire = None

    def _answer_for_the_dead(self) -> None:
        if self._wire is None and self._wanted is not None:
            action, self._wanted = self._wanted, None
            action([])
