"""When a job's ranks were up, and when they made steps, from its events; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.ledger import FINISHED

_STEPS: Final = (EventKind.STEPPING, EventKind.RECOVERED)
_LOSSES: Final = (EventKind.RECOVERING, EventKind.ATTEMPT_STARTED)


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of time, in seconds since 1970; without an end yet, it is infinite."""

    begin: float
    end: float

    def clipped(self, begin: float, end: float) -> Period:
        """Return the part of it from ``begin`` to ``end``; perhaps one of no length."""
        start = min(max(self.begin, begin), end)
        return Period(start, max(min(self.end, end), start))


def covered(periods: Iterable[Period]) -> float:
    """Return how many seconds lie in at least one of the periods."""
    total, until = 0.0, -inf
    for period in sorted(periods, key=lambda each: each.begin):
        total += max(period.end - max(period.begin, until), 0.0)
        until = max(until, period.end)
    return total


def stepping(events: Iterable[RunEvent]) -> tuple[Period, ...]:
    """Return when steps were made: from the first of the ranks to their last one."""
    marks: list[tuple[float, bool]] = []
    for event in events:
        if event.kind in _STEPS:
            marks.append((float(event.details.get("at", event.time)), True))
        elif event.kind in _LOSSES:
            # The last step was made before anybody noticed that there are no more.
            marks.append((float(event.details.get("last_at") or event.time), False))
        elif event.kind in FINISHED:
            marks.append((event.time, False))
    return _between(marks)


def ranks_up(events: Iterable[RunEvent]) -> tuple[Period, ...]:
    """Return when ranks were there, whatever they did."""
    ends = (*_LOSSES, EventKind.ATTEMPT_ENDED)
    return _between(
        (event.time, event.kind == EventKind.RANKS_STARTED)
        for event in events
        if event.kind == EventKind.RANKS_STARTED or event.kind in ends
    )


def _between(marks: Iterable[tuple[float, bool]]) -> tuple[Period, ...]:
    """Return the periods from each mark that opens one to the next that closes it."""
    found: list[Period] = []
    begin: float | None = None
    for at, opens in marks:
        if opens:
            begin = at if begin is None else begin
        elif begin is not None:
            found.append(Period(begin, max(at, begin)))
            begin = None
    return (*found, Period(begin, inf)) if begin is not None else tuple(found)
