"""What the agents wrote into a run folder about how an attempt ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from hpcplat.errors import ForbiddenError, NotFoundError
from hpcplat.eventlog import EventKind
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
    return _last_end(piece.data.split(b"\n"))


def _last_end(lines: Iterable[bytes]) -> Report | None:
    found = None
    for line in lines:
        event = _event(line)
        if event.get("kind") == EventKind.ATTEMPT_ENDED:
            found = _report(event) or found
    return found


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:  # the first line may be cut, the last not whole yet
        return {}
    return event if isinstance(event, dict) else {}


def _report(event: dict[str, Any]) -> Report | None:
    details = event.get("details")
    code = details.get("code") if isinstance(details, dict) else None
    if not isinstance(code, int):
        return None
    reason = str(event.get("what", "")) if code else ""
    return Report(
        code, "".join(c if c.isprintable() else " " for c in reason)[:LONGEST_REASON]
    )
