"""What was looked up, believed for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST: Final = 10_000  # then all of it is forgotten: nobody fills the memory with it


class Remembered(Generic[K, V]):
    """Values by key, each for so many seconds after it was kept."""

    def __init__(
        self, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._known: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        """Return the value of a key, if it was kept lately."""
        entry = self._known.get(key)
        is_fresh = entry is not None and self._clock() - entry[0] < self._seconds
        return entry[1] if entry is not None and is_fresh else None

    def keep(self, key: K, value: V) -> V:
        """Remember a value from now on; returns it."""
        if len(self._known) >= MOST:
            self.forget()
        self._known[key] = (self._clock(), value)
        return value

    def forget(self) -> None:
        """Forget everything: what it rests on was changed."""
        self._known.clear()
