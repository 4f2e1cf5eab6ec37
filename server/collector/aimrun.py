"""One run of an Aim repository, open to write."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from aim.sdk.logging import LogRecord
from aim.sdk.tracker import RunTracker
from aim.storage.rockscontainer import RocksContainer

from hpcplat.eventlog import RunEvent
from hpcplat.tracking.layout import MAIN, MetricsFile
from hpcplat.tracking.record import Histogram, Lost, Media, Numbers, Record, Text
from server.collector import contexts
from server.collector.marks import Marks
from server.collector.numbers import Counts, NumberWriter, Target
from server.collector.rich import aim_object

logger = logging.getLogger(__name__)

SYSTEM = "system/"  # before the names of what hpcplat.tracking.machine reads
LOG_RECORDS = "__log_records"  # Aim's name for a run's messages


class Position(NamedTuple):
    """How far a file was read: bytes, damaged lines, values lost by its writer."""

    offset: int = 0
    damaged: int = 0
    lost: int = 0
    begun: bool = False  # whether numbers of it were taken


class EventPosition(NamedTuple):
    """How far the events were read (bytes), and how many there were."""

    offset: int = 0
    taken: int = 0


class AimRun:
    """A run's two stores, and what is kept with the data: positions and counts.

    What is taken is written by ``commit``, positions last. Nothing else may write to
    this run at the same time.
    """

    def __init__(self, repository: Any, run: str, created: datetime) -> None:  # noqa: ANN401
        self.hash, self.repo, self.read_only = run, repository, False
        chunks = (Path(repository.path) / name / "chunks" / run for name in _STORES)
        self._meta, self._values = (_open(path) for path in chunks)
        self.meta_tree = self._meta.tree().subtree("meta")
        self.meta_run_tree = self.meta_tree.subtree("chunks").subtree(run)
        values = self._values.tree().subtree("seqs")
        self.series_run_trees = {
            1: values.subtree(("chunks", run)),
            2: values.subtree(("v2", "chunks", run)),
        }
        self.props = repository.request_props(run, False, created)
        self._numbers = NumberWriter(run, self._meta, self._values)
        self._tracker: Any = None
        self._notes: dict[str, Any] = {}
        self._extra: dict[tuple[str, ...], Any] = {}
        self._begin()

    def _begin(self) -> None:
        if self._get("end_time", _NOTHING) is _NOTHING:
            self.meta_run_tree["end_time"] = None
        if self._get("attrs") is None:
            self.meta_run_tree["attrs"] = {}
        stored = self._get("hpcplat") or {}
        self.positions = {
            name: Position(*found) for name, found in stored.get("files", {}).items()
        }
        self.events = EventPosition(*stored.get("events", EventPosition()))
        self._numbers.counts = Counts(**stored.get("counts", {}))
        self._marks = Marks(self._numbers, stored.get("marks", {}))

    def _get(self, key: str, default: object = None) -> Any:  # noqa: ANN401 - Aim's
        return self.meta_run_tree.get(key, default)

    @property
    def pending(self) -> int:
        """How many points wait for the commit."""
        return self._numbers.size

    def take(
        self,
        file: MetricsFile,
        records: Iterable[Record],
        position: Position,
        media: Path,
    ) -> None:
        """Take the records of a chunk and the position after it."""
        target = Target(contexts.of_file(file), contexts.superseded_by(file))
        numbers = []
        for record in records:
            if isinstance(record, Numbers):
                self._numbers.add(_as_aim_names(record), target)
                numbers.append(record)
            elif isinstance(record, Text | Histogram | Media):
                self._take_rich(record, target, media)
            elif isinstance(record, Lost):
                position = position._replace(lost=record.count)
        if file.source == MAIN and numbers:
            begins = not position.begun
            self._marks.attempt(file, numbers[0], numbers[-1], begins=begins)
            position = position._replace(begun=True)
        self.positions[_name(file)] = position
        self._extra["hpcplat", "files", _name(file)] = list(position)

    def position(self, file: MetricsFile) -> Position:
        """Return how far a file was taken."""
        return self.positions.get(_name(file), Position())

    def _take_rich(
        self, record: Text | Histogram | Media, target: Target, media: Path
    ) -> None:
        if self._numbers.has(target.context, record.name):
            self._numbers.counts.dropped += 1  # one name, numbers and texts
            return
        try:
            value = aim_object(record, media)
        except (OSError, ValueError) as error:
            logger.warning("%s of run %s: %s", record.name, self.hash, error)
            return
        self._track(value, record.time, record.name, record.step, target.context.values)

    def take_event(self, event: RunEvent, offset: int, step: int | None = None) -> None:
        """Take an event as one of the run's messages.

        ``offset`` is where the next one begins. A failure has a ``step``, the newest
        that was logged before it, and is drawn too.
        """
        number = self.events.taken
        level = logging.INFO if step is None else logging.ERROR
        message = LogRecord(
            event.what, level, timestamp=event.time, logger_info=(event.kind, 0)
        )
        self._track(message, event.time, LOG_RECORDS, number, {})
        if step is not None:
            self._marks.failure(event.time, step)
        self.events = EventPosition(offset, number + 1)
        self._extra["hpcplat", "events"] = list(self.events)

    def _track(
        self,
        value: Any,  # noqa: ANN401 - one of Aim's objects
        time: float,
        name: str,
        step: int,
        context: dict[str, Any],
    ) -> None:
        if self._tracker is None:
            self._tracker = RunTracker(self)
        self._tracker._track(value, time, name, step, context=context)

    def describe(self, key: str, value: Any) -> None:  # noqa: ANN401 - what JSON can hold
        """Replace one of the run's parameters, such as ``job`` or ``lineage``."""
        for tree in (self.meta_run_tree, self.meta_tree):
            tree.subtree("attrs").set(key, value, strict=False)

    def name(self, name: str, experiment: str) -> None:
        """Name the run and its experiment, as the UI lists them."""
        if self.props.name != name:
            self.props.name = name
        if self.props.experiment != experiment:
            self.props.experiment = experiment

    def commit(self) -> None:
        """Write what was taken; the positions become visible with it, or not at all."""
        self._extra["hpcplat", "counts"] = asdict(self._numbers.counts)
        self._extra["hpcplat", "marks"] = self._marks.state()
        self._numbers.commit(self._extra)
        self._extra = {}

    def end(self, time: float | None) -> None:
        """Set when the run ended (Unix time); None: it goes on."""
        if self._get("end_time") != time:
            self.meta_run_tree["end_time"] = time

    def close(self) -> None:
        """Commit, and close the stores."""
        self.commit()
        self.abandon()

    def abandon(self) -> None:
        """Close the stores; what was not committed is lost here, not in the files."""
        self._tracker = None
        for store in (self._meta, self._values):
            store.close()

    def describe_notes(self) -> None:
        """Say among the parameters what is odd about the run's numbers."""
        counts = self._numbers.counts
        notes = {
            "points_run_again": counts.superseded,
            "values_dropped": counts.dropped,
            "first_not_finite": dict(counts.not_finite),
            "values_lost": sum(p.lost for p in self.positions.values()),
            "lines_damaged": sum(p.damaged for p in self.positions.values()),
        }
        if notes != self._notes:
            self._notes = notes
            self.describe("tracking", notes)


_STORES = ("meta", "seqs")
_NOTHING = object()


def _as_aim_names(record: Numbers) -> Numbers:
    """Name a node's metrics as the UI's page for the system wants them."""
    if not any(name.startswith(SYSTEM) for name in record.values):
        return record
    values = {
        f"__system__{name.removeprefix(SYSTEM)}"
        if name.startswith(SYSTEM)
        else name: value
        for name, value in record.values.items()
    }
    return Numbers(record.time, record.step, values)


def _name(file: MetricsFile) -> str:
    return f"attempt-{file.attempt}/{file.path.name}"


def _open(path: Path) -> Any:  # noqa: ANN401 - Aim's
    path.parent.mkdir(parents=True, exist_ok=True)
    return RocksContainer(str(path), read_only=False)
