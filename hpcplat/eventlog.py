"""The event log of a run folder: whole lines of JSON that any process may append."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from hpcplat.foreign import printable, read_object

# POSIX keeps appends of one write() whole; a line above this is cut to stay one write.
LONGEST_LINE: Final = 60_000
LARGEST_READ: Final = 4 * 1024 * 1024
LAST_TIME: Final = 253_402_300_000  # in the year 9999: no calendar goes further


class EventKind(StrEnum):
    """What happened inside an allocation."""

    ATTEMPT_STARTED = "attempt-started"
    RANKS_STARTED = "ranks-started"
    RANKS_STOPPED = "ranks-stopped"
    STEPPING = "stepping"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    RANK_HANGS = "rank-hangs"
    RANK_SLOW = "rank-slow"
    REQUEUE_ASKED = "requeue-asked"
    SIGNAL_PASSED = "signal-passed"
    RANK_FAILED = "rank-failed"
    NODE_LOST = "node-lost"
    NODE_SUSPECTED = "node-suspected"
    OUTPUT_MISSING = "output-missing"
    ATTEMPT_ENDED = "attempt-ended"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened: when (seconds since 1970), in which attempt, in words.

    ``kind`` is an EventKind or a launcher's own word; ``details`` hold numbers and
    names for programs.
    """

    kind: str
    what: str
    attempt: int
    time: float = field(default_factory=time.time)
    details: Mapping[str, Any] = field(default_factory=dict)


def append(path: Path, event: RunEvent) -> None:
    """Add an event as one whole line, whoever else appends at the same time."""
    line = _line(event)
    if len(line) > LONGEST_LINE:
        line = _line(RunEvent(event.kind, event.what[:2000], event.attempt, event.time))
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def read(path: Path, offset: int = 0) -> tuple[tuple[RunEvent, ...], int]:
    """Return the events from ``offset`` (bytes) on, and the offset to go on from.

    A last line that is not whole yet is left for the next time; a line that is no
    event (a full disk cut it) is skipped. A missing file has no events.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(LARGEST_READ)
    except FileNotFoundError:
        return (), offset
    whole = content[: content.rfind(b"\n") + 1]
    return parse(whole), offset + len(whole)


def parse(content: bytes) -> tuple[RunEvent, ...]:
    """Return the events in whole lines of a log; what is no event is skipped.

    Their words are printable: a program may have put anything into them.
    """
    found = map(_event, content.splitlines())
    return tuple(event for event in found if event)


def read_all(path: Path) -> tuple[tuple[RunEvent, ...], int]:
    """Return all events of a log, however long it is, and its end."""
    found: list[RunEvent] = []
    offset = 0
    while True:
        some, end = read(path, offset)
        found += some
        if end == offset:
            return tuple(found), end
        offset = end


def _line(event: RunEvent) -> bytes:
    text = json.dumps(asdict(event), ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace") + b"\n"


def _event(line: bytes) -> RunEvent | None:
    try:
        found = RunEvent(**(read_object(line) or {}))
    except TypeError:
        return None
    return replace(found, what=printable(found.what)) if _is_sound(found) else None


def _is_sound(found: RunEvent) -> bool:
    """Tell whether each value is of its type: a person's program may write the file."""
    return (
        isinstance(found.kind, str)
        and isinstance(found.what, str)
        and type(found.attempt) is int
        and isinstance(found.time, int | float)
        and 0 <= found.time <= LAST_TIME
        and isinstance(found.details, dict)
    )
