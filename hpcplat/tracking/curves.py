"""What a run logged, joined over its attempts: curves, starts and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hpcplat import eventlog
from hpcplat.errors import NotFoundError
from hpcplat.eventlog import EventKind
from hpcplat.runfolder import RunFolder
from hpcplat.tracking.layout import MAIN, MetricsFile, metrics_files
from hpcplat.tracking.reader import read_all
from hpcplat.tracking.record import Lost, Numbers, Opened

FAILURES = frozenset({EventKind.NODE_LOST, EventKind.RANK_FAILED})


class Point(NamedTuple):
    """A value at a step; ``time`` is Unix time in seconds."""

    step: int
    value: float
    time: float
    attempt: int


@dataclass(slots=True)
class Curve:
    """One metric of one source, by step.

    Where steps were run again, ``points`` has the newest value and ``superseded`` those
    before it: nothing is overwritten in silence.
    """

    name: str
    source: str = MAIN
    points: list[Point] = field(default_factory=list)
    superseded: list[Point] = field(default_factory=list)


class Start(NamedTuple):
    """A writer began: a new attempt, or ranks that were started again in one."""

    attempt: int
    rank: int
    time: float
    host: str
    step: int | None  # the first step that it logged


class Failure(NamedTuple):
    """Something died, in words, after ``step`` was logged (None: before any)."""

    time: float
    attempt: int
    what: str
    step: int | None


@dataclass(frozen=True, slots=True)
class History:
    """All that a run logged; ``lost`` values never arrived, ``damaged`` lines are torn."""

    curves: tuple[Curve, ...]
    starts: tuple[Start, ...]
    failures: tuple[Failure, ...]
    names: tuple[str, ...] = ()  # all that were logged, also those not asked for
    lost: int = 0
    damaged: int = 0

    def curve(self, name: str, source: str = MAIN) -> Curve:
        """Return one curve; NotFoundError names those that there are."""
        for curve in self.curves:
            if (curve.name, curve.source) == (name, source):
                return curve
        raise NotFoundError(
            f"No metric {name!r} was logged.",
            f"There are: {', '.join(self.names) or 'none yet'}.",
        )

    def restarts(self) -> tuple[Start, ...]:
        """Return one start for each time that ranks began again."""
        begun: Counter[int] = Counter()
        again: dict[int, Start] = {}
        for start in self.starts:
            begun[start.rank] += 1
            if begun[start.rank] > 1:
                again.setdefault(begun[start.rank], start)
        return tuple(again.values())


def history(
    folder: Path, names: Collection[str] = (), sources: Collection[str] = (MAIN,)
) -> History:
    """Read a run folder; ``names`` and ``sources`` choose curves (none: all)."""
    collected = _Collected(frozenset(names))
    for file in metrics_files(folder):
        if not sources or file.source in sources:
            collected.add_file(file)
    starts = tuple(collected.starts)
    return History(
        tuple(collected.joined()),
        starts,
        tuple(_failures(RunFolder(folder), collected.logged)),
        tuple(collected.seen),
        collected.lost,
        collected.damaged,
    )


class _Collected:
    """Points by metric and source, in the order in which they were logged."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.seen: dict[str, None] = {}
        self.points: dict[tuple[str, str], list[Point]] = {}
        self.starts: list[Start] = []
        self.logged: list[tuple[float, int]] = []  # (time, step) of the main source
        self.lost = self.damaged = 0

    def add_file(self, file: MetricsFile) -> None:
        records, _, damaged = read_all(file.path)
        self.damaged += damaged
        self.lost += max((r.count for r in records if isinstance(r, Lost)), default=0)
        numbers = [record for record in records if isinstance(record, Numbers)]
        opened = next(
            (record for record in records if isinstance(record, Opened)), None
        )
        if file.source == MAIN:
            self.logged += [(record.time, record.step) for record in numbers]
            if opened:
                first = numbers[0].step if numbers else None
                at = (file.attempt, opened.rank, opened.time, opened.host, first)
                self.starts.append(Start(*at))
        for record in numbers:
            self.seen.update(dict.fromkeys(record.values))
            self._add(file, record)

    def _add(self, file: MetricsFile, record: Numbers) -> None:
        for name, value in record.values.items():
            if not self.names or name in self.names:
                point = Point(record.step, value, record.time, file.attempt)
                self.points.setdefault((name, file.source), []).append(point)

    def joined(self) -> Iterator[Curve]:
        for (name, source), points in self.points.items():
            yield Curve(name, source, *join(points))


def join(points: Iterable[Point]) -> tuple[list[Point], list[Point]]:
    """Return the newest point of each step, by step, and those that it superseded.

    ``points`` come in the order in which they were logged.
    """
    newest: dict[int, Point] = {}
    superseded = []
    for point in points:
        before = newest.get(point.step)
        if before is not None:
            superseded.append(before)
        newest[point.step] = point
    return sorted(newest.values()), superseded


def _failures(run: RunFolder, logged: list[tuple[float, int]]) -> Iterator[Failure]:
    logged = sorted(logged)
    offset, more = 0, True
    while more:
        events, end = eventlog.read(run.events, offset)
        more, offset = end > offset, end
        for event in events:
            if event.kind in FAILURES:
                step = _newest_step(logged, event.time)
                yield Failure(event.time, event.attempt, event.what, step)


def _newest_step(logged: list[tuple[float, int]], time: float) -> int | None:
    before = [step for at, step in logged if at <= time]
    return before[-1] if before else None
