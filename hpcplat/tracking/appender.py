"""The thread that appends records to a run's metrics file, whatever the disk does."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeAlias

from hpcplat.allocation import node_name
from hpcplat.files import write_whole
from hpcplat.tracking.layout import create_next, media_folder
from hpcplat.tracking.losses import Losses
from hpcplat.tracking.record import (
    Histogram,
    Lost,
    Media,
    Numbers,
    Opened,
    Record,
    Text,
    encode,
)
from hpcplat.tracking.values import EXTENSIONS, Distribution, Picture, Rich

RETRY_SECONDS = 1.0
MAX_PICTURES = 64  # pictures and histograms that wait: they are large


class Place(NamedTuple):
    """Whose metrics: run folder, attempt (from 1), source and global rank."""

    run: Path
    attempt: int
    source: str
    rank: int


class Entry(NamedTuple):
    """One call of ``log``: its numbers, and what is not a number."""

    time: float
    step: int
    numbers: dict[str, float]
    others: dict[str, str | Rich]


Item: TypeAlias = Entry | threading.Event | None


class Appender:
    """Takes items from a queue and appends them; None ends it, an Event is set."""

    def __init__(self, place: Place, losses: Losses, wall: float) -> None:
        self.queue: SimpleQueue[Item] = SimpleQueue()
        self.pictures = threading.Semaphore(MAX_PICTURES)
        self._place = place
        self._losses, self._lost_written = losses, 0
        self._wall = wall
        self._file = -1
        self._closing = False

    def run(self) -> None:
        """Append until the end is asked for."""
        while not self._closing:
            items = list(self._taken())
            self._closing = None in items
            entries = [item for item in items if isinstance(item, Entry)]
            self._append(b"".join(self._lines(entries)))
            for item in items:
                if isinstance(item, threading.Event):
                    item.set()
        self._close()

    def _taken(self) -> Iterator[Item]:
        yield self.queue.get()
        try:
            while True:
                yield self.queue.get_nowait()
        except Empty:
            return

    def _lines(self, entries: list[Entry]) -> Iterator[bytes]:
        for entry in entries:
            if entry.numbers:
                yield encode(Numbers(entry.time, entry.step, entry.numbers))
            for name, value in entry.others.items():
                record = self._record(entry, name, value)
                if record is not None:
                    yield encode(record)
        if self._losses.count > self._lost_written:
            self._lost_written = self._losses.count
            yield encode(Lost(self._now(), self._lost_written, self._losses.reason))

    def _record(self, entry: Entry, name: str, value: str | Rich) -> Record | None:
        at = (entry.time, entry.step, name)
        if isinstance(value, str):
            return Text(*at, value)
        self.pictures.release()
        if isinstance(value, Distribution):
            return Histogram(*at, value.counts, value.low, value.high, value.not_finite)
        try:
            return Media(*at, self._keep(value), value.media_type, value.caption)
        except OSError as error:
            self._losses.add(1, "a picture could not be written", error)
            return None

    def _keep(self, picture: Picture) -> str:
        """Write a picture under its digest, once; return the file's name."""
        digest = hashlib.sha256(picture.data).hexdigest()[:32]
        name = f"{digest}.{EXTENSIONS[picture.media_type]}"
        path = media_folder(self._place.run) / name
        path.parent.parent.mkdir(exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            write_whole(path, picture.data)
        return name

    def _append(self, data: bytes) -> None:
        """Append whole lines; tries until it works, or once when the end was asked."""
        written = 0
        while written < len(data):
            try:
                if self._file < 0 or os.fstat(self._file).st_nlink == 0:
                    data = self._open() + data[_line_start(data, written) :]
                    written = 0
                written += os.write(self._file, memoryview(data)[written:])
            except OSError as error:
                self._losses.say("the run folder cannot be written:", error.strerror)
                if self._closing:
                    return
                time.sleep(RETRY_SECONDS)

    def _open(self) -> bytes:
        """Take a new file; return the line that begins it."""
        self._close()
        run, attempt, source, rank = self._place
        self._file = create_next(run, attempt, source)
        host, process = node_name(), os.getpid()
        return encode(Opened(self._now(), attempt, source, rank, host, process))

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _now(self) -> float:
        return self._wall + time.monotonic()


def _line_start(data: bytes, position: int) -> int:
    """Return where the line begins in which ``position`` lies."""
    return data.rfind(b"\n", 0, position) + 1
