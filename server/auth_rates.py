"""How often somebody may ask: a bucket of requests for each, refilled all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from hpcplat.errors import HpcplatError

MOST_KEPT: Final = 10_000  # buckets; then the full ones go


class TooManyError(HpcplatError):
    """Somebody asks too often; ``wait`` is in seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__("You ask too often.", f"Wait {wait:.1f} s.")
        self.wait = wait


class Rates:
    """Buckets of ``burst`` requests that fill at ``per_second``; 0: no limit."""

    def __init__(
        self,
        per_second: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.per_second = per_second
        self.burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, as of when

    def take(self, who: str) -> None:
        """Take one request out of somebody's bucket; TooManyError if it is empty."""
        if not self.per_second:
            return
        with self._lock:
            now = self._clock()
            left = self._left(who, now)
            if left < 1:
                raise TooManyError((1 - left) / self.per_second)
            if len(self._buckets) >= MOST_KEPT:
                self._forget_full(now)
            self._buckets[who] = (left - 1, now)

    def _left(self, who: str, now: float) -> float:
        left, at = self._buckets.get(who, (self.burst, now))
        return min(self.burst, left + (now - at) * self.per_second)

    def _forget_full(self, now: float) -> None:
        self._buckets = {
            who: bucket
            for who, bucket in self._buckets.items()
            if self._left(who, now) < self.burst
        }
