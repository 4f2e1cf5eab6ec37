"""A small event loop: sockets, signals and timers in one thread.

asyncio would add half again to what an agent imports (50 ms to 90), and ranks are forked
from this process: one thread, and nothing that a fork could catch in the middle.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

Action = Callable[[], None]


@dataclass(slots=True)
class Timer:
    """A call to come; ``cancelled`` ones are skipped."""

    action: Action
    cancelled: bool = False


class Loop:
    """Runs actions until ``stop``; signals arrive as calls between two actions."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._signals: dict[int, Action] = {}
        self._running = True
        # The interpreter writes each signal's number into a socket of ours.
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        self.watch(self._wake, self._signalled)

    def watch(
        self, socket: socket.socket, action: Action, events: int = selectors.EVENT_READ
    ) -> None:
        """Call ``action`` when the socket can be read (or what ``events`` says)."""
        if socket in self._selector.get_map():
            self._selector.modify(socket, events, action)
        else:
            self._selector.register(socket, events, action)

    def forget(self, socket: socket.socket) -> None:
        """Watch a socket no more."""
        self._selector.unregister(socket)

    def on_signal(self, number: signal.Signals, action: Action) -> None:
        """Call ``action`` for a signal."""
        self._signals[number] = action
        signal.signal(number, _noted)

    def later(self, seconds: float, action: Action) -> Timer:
        """Call ``action`` after some seconds."""
        timer = Timer(action)
        due = time.monotonic() + seconds
        heapq.heappush(self._timers, (due, next(self._order), timer))
        return timer

    def stop(self) -> None:
        """Leave ``run`` after the present action."""
        self._running = False

    def close(self) -> None:
        """Let go of the signals, and close every socket that is still watched."""
        signal.set_wakeup_fd(-1)
        for key in tuple(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr] # sockets alone are watched
        self._woken.close()
        self._selector.close()

    def run(self) -> None:
        """Run until stopped."""
        while self._running:
            for key, _ in self._selector.select(self._until_next()):
                key.data()
            self._fire()

    def _until_next(self) -> float | None:
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _fire(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            _, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.action()

    def _signalled(self) -> None:
        # In numerical order: SIGTERM before SIGCHLD, so that a rank which died of
        # Slurm's SIGTERM to all of us is known to have been told to.
        for number in sorted(set(self._wake.recv(4096))):
            self._signals.get(number, _nothing)()


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wake-up socket carries the signal to the loop."""


def _nothing() -> None:
    """Do nothing."""
