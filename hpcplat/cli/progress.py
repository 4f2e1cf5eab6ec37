"""How far a running job is: step, loss, tokens per second, time left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from hpcplat.tracking.layout import MAIN, MetricsFile, metrics_files
from hpcplat.tracking.reader import newest, newest_before, read_chunk
from hpcplat.tracking.record import Numbers

LOSSES: Final = ("loss", "train/loss", "lm loss")
SPEEDS: Final = ("tokens_per_second", "tokens/s", "throughput")
# A checkpoint's or an evaluation's values come after the step's own.
LATELY: Final = 6  # last lines of numbers in which a value is looked for
WINDOW: Final = 60.0  # seconds over which the speed is taken


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is; None for what it does not tell."""

    step: int
    steps: int | None
    loss: float | None
    tokens_per_second: float | None
    left: timedelta | None

    @property
    def share(self) -> float | None:
        """Return how much is done, from 0 to 1."""
        return min(1.0, self.step / self.steps) if self.steps else None


def progress_of(folder: Path, steps: int | None) -> Progress | None:
    """Return the progress that stands in a run folder; None if there is none.

    Reads the ends of the newest metrics file only; a folder that is not to be seen
    from here tells nothing.
    """
    try:
        file = _newest(folder)
        lately = newest(file.path, LATELY) if file else ()
        if file is None or not lately:
            return None
        last = lately[0]
        left = None if steps is None else _left(last, steps, file.path)
    except OSError:
        return None
    return Progress(
        step=last.step,
        steps=steps,
        loss=_value(lately, LOSSES),
        tokens_per_second=_value(lately, SPEEDS),
        left=left,
    )


def steps_of(spec: Mapping[str, Any]) -> int | None:
    """Return how many steps a spec asks for, where it says so."""
    steps = spec.get("settings", {}).get("steps")
    return steps if isinstance(steps, int) else None


def _newest(folder: Path) -> MetricsFile | None:
    found = [file for file in metrics_files(folder) if file.source == MAIN]
    return found[-1] if found else None


def _value(lately: Sequence[Numbers], names: tuple[str, ...]) -> float | None:
    """Return the newest value that has one of the names; the first name is the best."""
    told = ((each.values, name) for name in names for each in lately)
    return next((values[name] for values, name in told if name in values), None)


def _left(last: Numbers, steps: int, path: Path) -> timedelta | None:
    """Return how long the rest takes, by the pace of the last minute."""
    start = newest_before(path, last.time - WINDOW) or _first(path)
    if start is None or last.step <= start.step:
        return None
    pace = (last.time - start.time) / (last.step - start.step)
    return timedelta(seconds=max(0, steps - last.step) * pace)


def _first(path: Path) -> Numbers | None:
    """Return the first numbers of a file: its beginning is enough."""
    records = read_chunk(path, 0, 64 * 1024).records
    return next((r for r in records if isinstance(r, Numbers)), None)
