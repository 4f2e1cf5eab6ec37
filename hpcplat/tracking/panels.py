"""What a plot shows, before anyone draws it: panels, lines and marks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hpcplat.errors import InvalidError, NotFoundError
from hpcplat.tracking.curves import Curve, Failure, History, Point, Start

DEFAULT_PANELS = 4
FIRST = ("loss", "train/loss", "lm loss", "val/loss", "valid/loss", "eval_loss")


@dataclass(frozen=True, slots=True)
class Run:
    """A run to draw, and the name that its lines get."""

    label: str
    history: History


@dataclass(frozen=True, slots=True)
class Mark:
    """A failure or a restart; ``x`` is None where nothing had been logged."""

    x: float | None
    kind: str  # "failure" or "restart"
    words: str


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: finite points by x, and where values were not finite."""

    label: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    not_finite: tuple[float, ...]
    superseded: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric: a line for each run, and the marks of them all."""

    name: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class View:
    """How to look: x is the step or hours since the start; smoothing from 0 to < 1."""

    against_time: bool = False
    smoothing: float = 0.0
    since: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise InvalidError(
                f"Smoothing {self.smoothing:g} cannot be.", "Use 0 to 0.99."
            )


def panels(runs: Sequence[Run], names: Sequence[str], view: View) -> list[Panel]:
    """Return a panel for each name that any run has; NotFoundError if none has one."""
    chosen = list(names) or _default_names(runs)
    found = [_panel(runs, name, view) for name in chosen]
    for panel in found:
        if not panel.lines:
            there = dict.fromkeys(name for run in runs for name in run.history.names)
            raise NotFoundError(
                f"No metric {panel.name!r} was logged.",
                f"There are: {', '.join(there) or 'none yet'}.",
            )
    return found


def _default_names(runs: Sequence[Run]) -> list[str]:
    logged = dict.fromkeys(curve.name for run in runs for curve in run.history.curves)
    if not logged:
        raise NotFoundError(
            "No metrics were logged yet.", "Call hpcplat.run.log() in the training."
        )
    losses = [name for name in FIRST if name in logged]
    rest = [name for name in logged if name not in losses]
    return [*losses, *rest][:DEFAULT_PANELS]


def _panel(runs: Sequence[Run], name: str, view: View) -> Panel:
    lines = []
    for run in runs:
        for curve in run.history.curves:
            if curve.name == name:
                lines.append(_line(run, curve, view))
    marks = tuple(mark for run in runs for mark in _marks(run, view, len(runs) > 1))
    return Panel(name, tuple(lines), marks)


def _line(run: Run, curve: Curve, view: View) -> Line:
    points = [point for point in curve.points if point.step >= view.since]
    finite = [point for point in points if math.isfinite(point.value)]
    begun = _begun(run.history)
    return Line(
        run.label,
        tuple(_x(point, begun, view) for point in finite),
        tuple(_smoothed([point.value for point in finite], view.smoothing)),
        tuple(
            _x(point, begun, view) for point in points if not math.isfinite(point.value)
        ),
        tuple(
            (_x(point, begun, view), point.value)
            for point in curve.superseded
            if point.step >= view.since and math.isfinite(point.value)
        ),
    )


def _marks(run: Run, view: View, named: bool) -> Iterator[Mark]:
    prefix = f"{run.label}: " if named else ""
    for failure in run.history.failures:
        yield Mark(_place(run, failure, view), "failure", prefix + failure.what)
    for start in run.history.restarts():
        words = f"{prefix}attempt {start.attempt} on {start.host}"
        yield Mark(_place(run, start, view), "restart", words)


def _place(run: Run, event: Start | Failure, view: View) -> float | None:
    if view.against_time:
        return (event.time - _begun(run.history)) / 3600
    return None if event.step is None else float(event.step)


def _x(point: Point, begun: float, view: View) -> float:
    return (point.time - begun) / 3600 if view.against_time else float(point.step)


def _begun(history: History) -> float:
    times = [start.time for start in history.starts]
    if not times:
        times = [point.time for c in history.curves for point in islice(c.points, 1)]
    return min(times, default=0.0)


def _smoothed(values: list[float], smoothing: float) -> Iterator[float]:
    """Exponential moving average, corrected for its start (as Adam corrects its own)."""
    average, weight = 0.0, 0.0
    for value in values:
        average = smoothing * average + (1 - smoothing) * value
        weight = smoothing * weight + (1 - smoothing)
        yield average / weight
