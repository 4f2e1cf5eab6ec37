"""A progress bar for people; for logs, a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

Update = Callable[[int, int], None]

_EVERY = 10.0  # seconds between lines of a log


@contextmanager
def shown(what: str) -> Iterator[Update]:
    """Yield a function that is told what is done and what there is in all."""
    if not sys.stderr.isatty():
        yield _Lines(what)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    def __init__(self, what: str) -> None:
        self._what = what
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            print(f"{self._what}: {done} of {total}", file=sys.stderr, flush=True)
