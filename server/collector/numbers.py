"""Writing numbers into a run of Aim, in batches, straight into its two stores.

Aim's own ``track`` takes some 100 us a value: it takes a lock, looks up and writes one
value at a time. This writes the very same keys (Aim 3.29's second format of metrics) as
one RocksDB batch a store. A test compares the two through Aim's public interface.

A point's key is its series and step, so that writing it again changes nothing: batches
that are repeated after a crash leave no second point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aimrocks
from aim.storage import encoding, treeutils
from aim.storage.hashing import hash_auto
from aim.storage.utils import ArrayFlag

from hpcplat.tracking.record import Numbers
from server.collector.contexts import SeriesContext

MAX_SERIES = 20_000  # of one run: a page of Aim with more could not be used


class Target(NamedTuple):
    """Where values go, and where those go that they supersede (None: nowhere)."""

    context: SeriesContext
    superseded: SeriesContext | None


class _Keys(NamedTuple):
    """Where a series' four arrays begin; a point's own key follows."""

    value: bytes
    epoch: bytes
    time: bytes
    step: bytes


_ARRAYS = ("val", "epoch", "time", "step")  # Aim's names for them


@dataclass(slots=True)
class _Series:
    """One metric: its keys in the store of values, and its summary."""

    context: SeriesContext
    name: str
    keys: _Keys
    is_new: bool
    last_step: float = -math.inf
    last: float = math.nan
    most: float = -math.inf
    least: float = math.inf
    first: tuple[int, float] | None = None
    dirty: bool = False


@dataclass(slots=True)
class Counts:
    """What was noticed while writing."""

    points: int = 0
    superseded: int = 0
    dropped: int = 0  # values of names that are too many, or of texts
    not_finite: dict[str, int] = field(default_factory=dict)  # name -> first step


class NumberWriter:
    """Writes numbers of one run; ``commit`` makes them and what comes with them last."""

    def __init__(self, run: str, meta: Any, values: Any) -> None:  # noqa: ANN401 - Aim
        self._run, self._meta, self._values = run, meta, values
        self._root: tuple[Any, ...] = ("meta", "chunks", run)
        self._series: dict[tuple[int, str], _Series] = {}
        self._contexts: set[int] = set()
        self._clear()
        self.counts = Counts()

    def _clear(self) -> None:
        self._points = aimrocks.WriteBatch()
        self._written: dict[bytes, tuple[float, float]] = {}  # of this batch, by key

    @property
    def size(self) -> int:
        """How many points wait for the commit."""
        return len(self._written)

    def add(self, record: Numbers, target: Target) -> None:
        """Take the values of one step."""
        key = encoding.encode_path((hash_auto(record.step),))
        for name, value in record.values.items():
            series = self._find(target.context, name)
            if series is None:
                continue
            if target.superseded and record.step <= series.last_step:
                self._keep_before(series, record, value, key, target.superseded)
            self._put(series, key, record.step, value, record.time)
            if not math.isfinite(value):
                self.counts.not_finite.setdefault(name, record.step)

    def remove(self, context: SeriesContext, name: str, step: int) -> None:
        """Take a point away; one that is not there is fine."""
        series = self._find(context, name)
        if series is not None:
            key = encoding.encode_path((hash_auto(step),))
            for array in series.keys:
                self._points.delete(array + key)
            self._written.pop(series.keys.value + key, None)
            series.last_step = (
                -math.inf if step == series.last_step else series.last_step
            )

    def has(self, context: SeriesContext, name: str) -> bool:
        """Return whether a curve of numbers has this name."""
        return (context.number, name) in self._series

    def commit(self, extra: Mapping[tuple[str, ...], Any]) -> None:
        """Write all; ``extra`` goes to the run's own tree, in one batch with the rest.

        The values come first, and are on the disk before the rest is written: what
        ``extra`` says of them (how far the files were read) is never ahead of them.
        """
        if self._written:
            self._values.db.write(self._points, sync=True)
        batch = self._meta.batch()
        for series in self._series.values():
            if series.dirty:
                self._summarize(series, batch)
        for path, value in extra.items():
            self._set(batch, self._root + path, value)
        self._meta.commit(batch)
        self._clear()

    def _find(self, context: SeriesContext, name: str) -> _Series | None:
        found = self._series.get((context.number, name))
        if found is not None:
            return found
        found = self._load(context, name) if len(self._series) < MAX_SERIES else None
        if found is None:
            self.counts.dropped += 1
            return None
        self._series[context.number, name] = found
        return found

    def _load(self, context: SeriesContext, name: str) -> _Series | None:
        """Return a series as the store has it; None if it is none of numbers."""
        base = encoding.encode_path(
            ("seqs", "v2", "chunks", self._run, context.number, name)
        )
        keys = _Keys(*(base + encoding.encode_path((part,)) for part in _ARRAYS))
        if self._summary(context, name, "dtype") not in (None, "float"):
            return None
        last_step = self._summary(context, name, "last_step")
        if last_step is None:
            for key in keys:
                self._points.put(key, _ARRAY)
            return _Series(context, name, keys, is_new=True)
        last, most, least = (
            self._summary(context, name, word) for word in ("last", "max", "min")
        )
        return _Series(context, name, keys, False, last_step, last, most, least)

    def _summary(self, context: SeriesContext, name: str, word: str) -> Any:  # noqa: ANN401
        path = encoding.encode_path((*self._root, "traces", context.number, name, word))
        found = self._meta.get(path)
        return None if found is None else encoding.decode(found)

    def _keep_before(
        self,
        series: _Series,
        record: Numbers,
        value: float,
        key: bytes,
        superseded: SeriesContext,
    ) -> None:
        """Keep the value that this step had; the same value means a repeated batch."""
        before = self._stored(series, key)
        if before is None:
            return
        kept = self._find(superseded, series.name)
        if kept is None:
            return
        if _same(before, (value, record.time)):
            # Kept already, but a crash came before the summary was written.
            again = self._stored(kept, key)
            if again is not None:
                self._put(kept, key, record.step, *again)
        else:
            self._put(kept, key, record.step, *before)
            self.counts.superseded += 1

    def _stored(self, series: _Series, key: bytes) -> tuple[float, float] | None:
        fresh = self._written.get(series.keys.value + key)
        if fresh is not None:
            return fresh
        value = self._values.db.get(series.keys.value + key)
        if value is None:
            return None
        time = self._values.db.get(series.keys.time + key)
        return encoding.decode(value), encoding.decode(time)

    def _put(
        self, series: _Series, key: bytes, step: int, value: float, time: float
    ) -> None:
        put, encode = self._points.put, encoding.encode
        put(series.keys.value + key, encode(value))
        put(series.keys.epoch + key, _NONE)
        put(series.keys.time + key, encode(time))
        put(series.keys.step + key, encode(step))
        self._written[series.keys.value + key] = (value, time)
        self.counts.points += 1
        series.dirty = True
        series.most = max(series.most, value)  # a NaN changes neither
        series.least = min(series.least, value)
        if step >= series.last_step:
            series.last_step, series.last = step, value
        if series.first is None:
            series.first = (step, value)

    def _summarize(self, series: _Series, batch: Any) -> None:  # noqa: ANN401 - Aim's
        trace = (*self._root, "traces", series.context.number, series.name)
        for word, value in (
            ("last", series.last),
            ("last_step", series.last_step),
            ("max", series.most),
            ("min", series.least),
        ):
            self._set(batch, (*trace, word), value)
        if series.is_new and series.first is not None:
            self._announce(series, trace, batch, *series.first)
        series.is_new = series.dirty = False

    def _announce(
        self,
        series: _Series,
        trace: tuple[Any, ...],
        batch: Any,  # noqa: ANN401 - Aim's
        step: int,
        value: float,
    ) -> None:
        """Write what Aim wants to know of a series once, and its arrays' marks."""
        index, name = series.context.number, series.name
        self._set(batch, (*trace, "dtype"), "float")
        self._set(batch, (*trace, "version"), 2)
        self._set(batch, (*trace, "first"), value)
        self._set(batch, (*trace, "first_step"), step)
        self._set(batch, (*self._root, "typed_traces", "metric", index, name), 1)
        self._set(batch, ("meta", "traces_types", "float", index, name), 1)
        if index not in self._contexts:
            self._contexts.add(index)
            for path in ((*self._root, "contexts", index), ("meta", "contexts", index)):
                self._set(batch, path, series.context.values)

    def _set(self, batch: Any, path: tuple[Any, ...], value: Any) -> None:  # noqa: ANN401
        prefix = encoding.encode_path(path)
        for key, encoded in treeutils.encode_tree(value):
            self._meta.set(prefix + key, encoded, store_batch=batch)


_NONE = encoding.encode(None)
_ARRAY = encoding.encode(ArrayFlag)


def _same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    encoded = (tuple(map(encoding.encode, pair)) for pair in (one, other))
    return len(set(encoded)) == 1
