"""The agent's view of its node's keeper."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Callable, Sequence

from launchers import children
from launchers.loop import Loop
from launchers.messages import Start
from launchers.ports import listening
from launchers.recovery.wire import Wire

Held = Sequence[tuple[int, int]]


class KeeperProcess:
    """Starts the keeper; it goes with us. ``name`` is its socket's, for the ranks.

    A keeper that died holds nothing, and is not missed: ranks start from disk then.
    """

    def __init__(self, loop: Loop, word: str) -> None:
        self._loop = loop
        self.name = f"hpcplat-{os.getpid()}-{secrets.token_hex(8)}"
        self._wanted: Callable[[Held], None] | None = None
        own, other = socket.socketpair()
        ranks = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        keepers = listening()
        with other, ranks, keepers:
            ranks.bind(f"\0{self.name}")
            ranks.listen()
            self.port: int = keepers.getsockname()[1]
            files = [other.fileno(), ranks.fileno(), keepers.fileno()]
            words = [sys.executable, "-I", "-m", "launchers.recovery.keeper"]
            children.start_below([*words, *map(str, files)], files)
        self._wire: Wire | None = Wire(own)
        self._send(word=word)
        loop.watch(own, self._spoke)

    def start(self, order: Start) -> None:
        """Tell it of the ranks that start now."""
        self._send(
            kind="start",
            generation=order.generation,
            resume=order.resume,
            buddy=order.buddy or None,
            sources={rank: [host, port] for rank, host, port in order.sources},
        )

    def listing(self, action: Callable[[Held], None]) -> None:
        """Call ``action`` with what it holds, once the ranks that died are done with."""
        self._wanted = action
        self._send(kind="inventory")

    def _send(self, **message: object) -> None:
        if self._wire is not None:
            try:
                self._wire.send(**message)
            except OSError:
                self._gone()
        self._answer_for_the_dead()

    def _spoke(self) -> None:
        message = self._wire.receive() if self._wire is not None else None
        if message is None:
            self._gone()
            self._answer_for_the_dead()
        elif self._wanted is not None:
            action, self._wanted = self._wanted, None
            action([(rank, step) for rank, step in message["held"]])

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
