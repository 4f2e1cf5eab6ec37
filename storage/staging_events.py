"""What a job's events say of its dataset's way to a node's disk."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from hpcplat import eventlog
from hpcplat.eventlog import RunEvent
from hpcplat.runfolder import RunFolder

_EVERY = 10.0  # seconds between events


@dataclass(slots=True)
class StagingEvents:
    """Writes the progress of one node to the run folder, now and then and at the end."""

    version: str
    folder: RunFolder
    attempt: int
    node: str = field(default_factory=lambda: os.uname().nodename)
    last: float = field(default_factory=time.monotonic)

    def __call__(self, done: int, total: int) -> None:
        """Take note of bytes done of all."""
        now = time.monotonic()
        if done < total and now - self.last < _EVERY:
            return
        self.last = now
        share = 100 * done // max(total, 1)
        self.tell(
            "data-staged",
            f"{self.version} is staged on {self.node} to {share} %.",
            bytes=done,
            of=total,
        )

    def tell(self, kind: str, what: str, **details: Any) -> None:  # noqa: ANN401
        """Append an event; a full disk keeps no job from going on."""
        details["node"] = self.node
        event = RunEvent(kind, what, self.attempt, details=details)
        try:
            eventlog.append(self.folder.events, event)
        except OSError as error:
            print(f"{what} (not in the event log: {error.strerror})", file=sys.stderr)
