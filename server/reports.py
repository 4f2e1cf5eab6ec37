"""What the agents wrote into a run folder about how an attempt ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hpcplat import eventlog
from hpcplat.errors import ForbiddenError, NotFoundError
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from server import logfiles
from server.judgement import Report, Start, newest_failed

LONGEST_REASON: Final = 2000  # characters; a user's program may print anything


def report_of(folder: str, starts: Sequence[Start], offset: int = 0) -> Report | None:
    """Return the agent's report on the newest failed start; None if there is none.

    ``offset`` is what a part of an array adds to its tasks' indices.
    """
    run = RunFolder(Path(folder))
    newest = newest_failed(starts)
    own = run if newest is None or newest.task < 0 else run.task(newest.task + offset)
    try:
        piece = logfiles.read_piece(run.root, own.events, -logfiles.LARGEST_PIECE)
    except (NotFoundError, ForbiddenError):
        return None
    return _last_end(eventlog.parse(piece.data))


def _last_end(events: Sequence[RunEvent]) -> Report | None:
    for event in reversed(events):
        code = event.details.get("code")
        if event.kind == EventKind.ATTEMPT_ENDED and isinstance(code, int):
            return Report(code, event.what[:LONGEST_REASON] if code else "")
    return None
