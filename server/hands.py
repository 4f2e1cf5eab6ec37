"""What the workers of a service have in hand, and what they are woken by."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from server.queries.submissions import Work


@dataclass
class Promise:
    """Room in hand for so many submissions, and those that were claimed for it."""

    room: int
    works: list[Work] = field(default_factory=list)


class Hands:
    """At most so many claimed submissions: what a crash would leave in doubt."""

    def __init__(self) -> None:
        self._most = 0
        self._news = threading.Condition()
        self._handed: deque[Work] = deque()
        self._held = 0  # claimed, or promised to be
        self._queued = False
        self._open = False
        self._over = True  # closed, and nobody waits for what is in hand any more

    @property
    def are_open(self) -> bool:
        """Whether workers take anything up."""
        return self._open

    @property
    def are_done(self) -> bool:
        """Whether workers may leave: closed, and nothing is in hand or promised.

        A request that was promised room before the end still hands over what it claims.
        """
        return not self._open and (self._over or self._held == 0)

    def open(self, most: int) -> None:
        """Take up to ``most`` submissions at a time from now on."""
        with self._news:
            self._open, self._over, self._most = True, False, most

    def close(self, patience: float) -> None:
        """Take nothing up any more; wait some seconds for what is in hand to be sent.

        After that the workers leave even so.
        """
        with self._news:
            self._open = False
            self._news.notify_all()
            self._news.wait_for(lambda: self._held == 0, patience)
            self._over = True
            self._news.notify_all()

    def wake(self) -> None:
        """Say that something was queued in the database."""
        with self._news:
            self._queued = True
            self._news.notify()

    @contextmanager
    def promising(self, wanted: int) -> Iterator[Promise]:
        """Keep room while a transaction claims; hand over what it has claimed.

        When it fails nothing is handed over.
        """
        with self._news:
            promise = Promise(self._room(wanted))
            self._held += promise.room
        works: list[Work] = []
        try:
            yield promise
            works = promise.works
        finally:
            self.give(works, promise.room)

    def give(self, works: Sequence[Work], room: int) -> None:
        """Hand over what was claimed for the room that was kept."""
        with self._news:
            self._handed.extend(works)
            self._news.notify(len(works))
            self._change(len(works) - room)

    @contextmanager
    def exchanging(self, noted: int, wanted: int) -> Iterator[Promise]:
        """Keep room while a worker's transaction notes some and claims others instead.

        When it fails the worker has in hand what it had before.
        """
        with self._news:
            promise = Promise(self._room(wanted, noted))
            # What is noted makes room for others no sooner than the transaction is done.
            kept = max(promise.room - noted, 0)
            self._held += kept
        change = -kept
        try:
            yield promise
            change += len(promise.works) - noted
        finally:
            with self._news:
                self._change(change)

    def take(self) -> list[Work]:
        """Return the next submission that was handed over, if there is any."""
        with self._news:
            return [self._handed.popleft()] if self._handed else []

    def rest(self, seconds: float) -> tuple[list[Work], bool]:
        """Wait for news; return a submission handed over, and whether any is queued."""
        with self._news:
            self._news.wait_for(self._is_over, seconds)
            if self._handed:
                return [self._handed.popleft()], False
            queued, self._queued = self._queued, False
            return [], queued

    def _room(self, wanted: int, leaving: int = 0) -> int:
        if not self._open:
            return 0
        return max(min(wanted, self._most - self._held + leaving), 0)

    def _change(self, change: int) -> None:
        self._held += change
        if not self._open:  # else nobody waits for it
            self._news.notify_all()

    def _is_over(self) -> bool:
        return bool(self._handed) or (self._queued and self._open) or self.are_done
