"""Aim's contexts: which curve a value belongs to."""

from __future__ import annotations

from typing import Any, NamedTuple

from aim.storage.context import Context

from hpcplat.tracking.layout import MAIN, MetricsFile


class SeriesContext(NamedTuple):
    """Aim's number for a context, and what it holds."""

    number: int
    values: dict[str, Any]


def context(values: dict[str, Any]) -> SeriesContext:
    """Return the context with Aim's own number for it."""
    return SeriesContext(Context(values).idx, values)


def of_file(file: MetricsFile) -> SeriesContext:
    """Return where the values of a file belong: {} for the run's own curve."""
    return context(_values(file))


def superseded_by(file: MetricsFile) -> SeriesContext:
    """Return where values go that are run again by the writer of ``file``."""
    # No comma: the UI cuts a context's words at it.
    start = f" start {file.number + 1}" if file.number else ""
    words = f"attempt {file.attempt}{start}"
    return context({**_values(file), "superseded_by": words})


def _values(file: MetricsFile) -> dict[str, Any]:
    if file.source == MAIN:
        return {}
    kind, _, name = file.source.partition("-")
    if kind == "rank" and name.isdecimal():
        return {"rank": int(name)}
    return {kind: name or kind}
