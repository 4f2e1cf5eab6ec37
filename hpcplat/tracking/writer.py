"""The writer of metrics in a training process: quick, and never the reason of a stop.

``log`` hands its values to a thread that appends them to a file in the run folder. A
file system that hangs, fills or vanishes costs values (counted, said once), never a
step. What was handed to the kernel survives kill -9: all but the last milliseconds.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from time import time as now
from typing import Any

from hpcplat.tracking.appender import Appender, Entry, Item, Place
from hpcplat.tracking.layout import MAIN
from hpcplat.tracking.losses import Losses
from hpcplat.tracking.values import rich

MAX_PENDING = 10_000  # calls that wait for the disk: minutes of a training
MAX_NAMES = 10_000  # distinct names of one writer
MAX_NAME_LENGTH = 250  # characters
CLOSE_SECONDS = 5.0


class MetricsWriter:
    """Appends metrics to a run folder; no method raises, whatever the disk does.

    ``folder`` is the run folder, ``rank`` the global rank, ``attempt`` counts from 1.
    What ``source`` "main" writes is the run's own curve, whichever rank knows it; values
    of one rank or node among many are written by ``rank-3`` or ``node-n1``.
    """

    _process: int
    _queue: SimpleQueue[Item]
    _pictures: threading.Semaphore
    _thread: threading.Thread

    def __init__(
        self,
        folder: Path | str,
        rank: int = 0,
        attempt: int = 1,
        *,
        source: str = MAIN,
    ) -> None:
        self._place = Place(Path(folder), attempt, source, rank)
        self._losses = Losses()
        self._names: set[str] = set()
        self._start()

    @property
    def lost(self) -> int:
        """How many values were lost so far."""
        return self._losses.count

    def log(
        self, values: Mapping[str, Any], step: int, *, time: float | None = None
    ) -> None:
        """Append ``values`` of ``step``; returns at once and never raises.

        ``time`` is Unix time in seconds; now, if it is not given.
        A value is a number (whatever ``float`` takes: also a tensor of one element), a
        text, a Distribution, an Image, or a figure of matplotlib or plotly.
        """
        try:
            if os.getpid() != self._process:
                self._start()  # closed; or a fork, which has no thread
            if self._queue.qsize() >= MAX_PENDING:
                self._losses.add(len(values), "the disk does not keep up")
                return
            at = self._wall + monotonic() if time is None else time
            entry = Entry(at, int(step), {}, {})
            for name, value in values.items():
                if name in self._names or self._admit(name):
                    self._take(entry, name, value)
            self._queue.put(entry)
        except Exception as error:  # noqa: BLE001  # no metric is worth a training
            self._losses.add(1, "a call of log() could not be taken:", repr(error))

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until all that was logged is written; False if ``timeout`` s pass."""
        if os.getpid() != self._process:
            return True  # closed, or a fork that logged nothing
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Write what waits and end; takes ``timeout`` seconds at most."""
        atexit.unregister(self.close)
        if os.getpid() != self._process:
            return
        self._process = 0  # what is logged from now on goes to a new file
        self._queue.put(None)
        self._thread.join(timeout)

    def _start(self) -> None:
        self._process = os.getpid()
        atexit.register(self.close)
        # Steps of the clock after this are not seen: times of a writer never go back.
        self._wall = now() - monotonic()
        appender = Appender(self._place, self._losses, self._wall)
        self._queue, self._pictures = appender.queue, appender.pictures
        # A daemon: a file system that hangs must not keep the process.
        self._thread = threading.Thread(target=appender.run, daemon=True)
        self._thread.name = "hpcplat-metrics"
        self._thread.start()

    def _take(self, entry: Entry, name: str, value: Any) -> None:  # noqa: ANN401
        if isinstance(value, float | int):
            entry.numbers[name] = float(value)
        elif isinstance(value, str):
            entry.others[name] = value
        elif (found := rich(value)) is not None:
            if self._pictures.acquire(blocking=False):
                entry.others[name] = found
            else:
                self._losses.add(1, "pictures come faster than they can be written")
        else:
            self._take_number(entry, name, value)

    def _take_number(self, entry: Entry, name: str, value: Any) -> None:  # noqa: ANN401
        try:
            entry.numbers[name] = float(value)
        except Exception as error:  # noqa: BLE001  # the value's own code runs here
            self._losses.add(1, "not a number, text, Distribution, Image:", repr(error))

    def _admit(self, name: str) -> bool:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
            limit = f"a metric's name has 1 to {MAX_NAME_LENGTH} characters"
            self._losses.add(1, limit)
            return False
        if len(self._names) >= MAX_NAMES:
            self._losses.add(1, f"more than {MAX_NAMES} distinct metric names")
            return False
        self._names.add(name)
        return True
