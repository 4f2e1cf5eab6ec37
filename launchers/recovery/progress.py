"""Whether a job gets on from attempt to attempt; pure."""

from __future__ import annotations

from collections.abc import Iterable

from hpcplat.eventlog import EventKind, RunEvent

SAVED = "checkpoint-saved"


def attempts_without_progress(events: Iterable[RunEvent]) -> int:
    """Return how many times in a row a requeue was asked for at the same saved step.

    The saved step must advance: what is not saved when an attempt ends is lost.
    """
    saved, known, count = 0, -1, 0
    for event in events:
        if event.kind == SAVED:
            saved = max(saved, int(event.details.get("step", 0)))
        elif event.kind == EventKind.REQUEUE_ASKED:
            count = count + 1 if saved == known else 0
            known = saved
    return count
