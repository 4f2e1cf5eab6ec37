"""The curves that show where attempts begin and where something failed."""

from __future__ import annotations

from typing import Any, NamedTuple

from hpcplat.tracking.layout import MetricsFile
from hpcplat.tracking.record import Numbers
from server.collector.contexts import context
from server.collector.numbers import NumberWriter, Target

ATTEMPT = "hpcplat/attempt"
FAILURES = "hpcplat/failures"
MAIN_CONTEXT = context({})
_OWN = Target(MAIN_CONTEXT, None)  # our own curves: written over at will


class Stretch(NamedTuple):
    """The steps that the newest writer of the run's curve covers so far."""

    attempt: int
    first: int
    last: int


class Marks:
    """Keeps both curves; ``stored`` is what ``state`` gave before a restart."""

    def __init__(self, numbers: NumberWriter, stored: dict[str, Any]) -> None:
        self._numbers = numbers
        stretch = stored.get("stretch")
        self._stretch = Stretch(*stretch) if stretch else None
        self._failures: int = stored.get("failures", 0)

    def state(self) -> dict[str, Any]:
        """Return what a later process needs to go on."""
        stretch = list(self._stretch) if self._stretch else None
        return {"stretch": stretch, "failures": self._failures}

    def attempt(
        self, file: MetricsFile, first: Numbers, last: Numbers, *, begins: bool
    ) -> None:
        """Draw the attempt's number from its first step to the newest, as stairs."""
        before = self._stretch
        if before is None or begins:
            self._step_up(before, first)
            self._draw(ATTEMPT, first.time, first.step, file.attempt)
            start = first.step
        else:
            start = before.first
            if before.last != start:
                self._numbers.remove(MAIN_CONTEXT, ATTEMPT, before.last)
        self._draw(ATTEMPT, last.time, last.step, file.attempt)
        self._stretch = Stretch(file.attempt, start, last.step)

    def _step_up(self, before: Stretch | None, first: Numbers) -> None:
        """End the attempt before where this one begins, if it had gone further."""
        if before is not None and before.last >= first.step:
            self._numbers.remove(MAIN_CONTEXT, ATTEMPT, before.last)
            if before.first < first.step:
                self._draw(ATTEMPT, first.time, first.step - 1, before.attempt)

    def failure(self, time: float, step: int) -> None:
        """Draw one failure more, at the newest step that was logged before it."""
        if not self._failures:
            self._draw(FAILURES, time, 0, 0)
        self._failures += 1
        self._draw(FAILURES, time, step, self._failures)

    def _draw(self, name: str, time: float, step: int, value: float) -> None:
        self._numbers.add(Numbers(time, step, {name: float(value)}), _OWN)
