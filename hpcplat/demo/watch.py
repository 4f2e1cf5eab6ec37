"""What a run's folder tells while it trains: events, steps, and which nodes train."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hpcplat import eventlog
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.tracking.curves import History, history

TRAINED = ("loss", "tokens_per_second", "step_seconds")


@dataclass(frozen=True, slots=True)
class Step:
    """The newest step: its number, its loss, tokens per second, when (Unix time)."""

    number: int
    loss: float
    speed: float
    time: float


@dataclass(slots=True)
class Watch:
    """Reads what is new in a run folder at each look."""

    folder: Path
    steps: int
    working: tuple[str, ...] = ()
    dead: list[str] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)
    _offset: int = 0

    def new_events(self) -> Iterator[RunEvent]:
        """Yield the events since the last look."""
        found, self._offset = eventlog.read(RunFolder(self.folder).events, self._offset)
        for event in found:
            self._note(event)
            self.events.append(event)
            yield event

    def _note(self, event: RunEvent) -> None:
        if event.kind == EventKind.RANKS_STARTED:
            self.working = tuple(event.details.get("nodes", ()))
        elif event.kind == EventKind.NODE_LOST:
            self.dead.append(event.details["node"])

    def logged(self) -> History:
        """Return all that was logged up to now."""
        return history(self.folder, TRAINED)

    def newest(self) -> Step | None:
        """Return the newest step; None before the first."""
        curves = {curve.name: curve.points for curve in self.logged().curves}
        if not curves.get("loss"):
            return None
        last = curves["loss"][-1]
        speeds = curves.get("tokens_per_second")
        return Step(last.step, last.value, speeds[-1].value if speeds else 0, last.time)

    def seconds_left(self, newest: Step) -> float | None:
        """Return how long the remaining steps take at the pace of the last ones."""
        paces = sorted(
            point.value
            for curve in self.logged().curves
            if curve.name == "step_seconds"
            for point in curve.points[-20:]
        )
        if not paces:
            return None
        return paces[len(paces) // 2] * (self.steps - newest.number)

    def of_kind(self, kind: str) -> RunEvent | None:
        """Return the first event of a kind; None if there was none."""
        return next((event for event in self.events if event.kind == kind), None)
