"""Browser sessions: a one-time code becomes a cookie. Kept in memory only."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from server.auth import Principal

CODE_SECONDS: Final = 120.0
SESSION_SECONDS: Final = 12 * 3600.0
MOST: Final = 10_000  # of each; the oldest go first


@dataclass(frozen=True, slots=True)
class _Held:
    principal: Principal
    until: float


class Sessions:
    """Who is logged in; codes and sessions are kept as digests, and expire."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[str, _Held] = {}
        self._sessions: dict[str, _Held] = {}

    def new_code(self, principal: Principal) -> str:
        """Return a code that logs ``principal`` in, once, within two minutes."""
        return self._add(self._codes, principal, CODE_SECONDS)

    def redeem(self, code: str) -> str | None:
        """Return the cookie's value for a code, which is used up; None if it is none."""
        with self._lock:
            held = self._codes.pop(_digest(code), None)
        if held is None or held.until < self._clock():
            return None
        return self.begin(held.principal)

    def begin(self, principal: Principal) -> str:
        """Return the value of a new session's cookie."""
        return self._add(self._sessions, principal, SESSION_SECONDS)

    def holder(self, cookie: str) -> Principal | None:
        """Return who holds a cookie; None if nobody does (any more)."""
        held = self._sessions.get(_digest(cookie))
        if held is None or held.until < self._clock():
            return None
        return held.principal

    def end(self, cookie: str) -> None:
        """Log out."""
        with self._lock:
            self._sessions.pop(_digest(cookie), None)

    def _add(self, held: dict[str, _Held], principal: Principal, seconds: float) -> str:
        value = secrets.token_urlsafe(32)
        now = self._clock()
        with self._lock:
            for digest in [d for d, one in held.items() if one.until < now]:
                del held[digest]
            while len(held) >= MOST:
                del held[next(iter(held))]
            held[_digest(value)] = _Held(principal, now + seconds)
        return value


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode(errors="replace")).hexdigest()
