"""The ledger of a job, from the events in its run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from hpcplat import eventlog
from hpcplat.errors import ForbiddenError, NotFoundError
from hpcplat.ledger import Ledger, ledger
from hpcplat.runfolder import RunFolder
from server import logfiles

LARGEST: Final = 8 * 1024 * 1024  # bytes of events; a year of hourly failures


def ledger_of(folder: str, *, runs: bool) -> dict[str, Any] | None:
    """Return it as the API gives it; None before the first step, and for no training.

    ``runs``: the job runs now, and its time is not over.
    """
    run = RunFolder(Path(folder))
    try:
        piece = logfiles.read_piece(run.root, run.events, 0, LARGEST)
    except (NotFoundError, ForbiddenError):
        return None
    found = ledger(eventlog.parse(piece.data), time.time() if runs else None)
    return found.as_record() if _has_begun(found) else None


def _has_begun(found: Ledger) -> bool:
    return found.step > 0
