"""What an attempt came to once all of its ranks have ended; pure but for its outputs."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hpcplat.eventlog import EventKind
from hpcplat.signals import RankExit
from launchers.attempt import Attempt
from launchers.messages import Ended
from launchers.recovery.generation import Generation
from launchers.verdict import Verdict, failure, first_failure, missing_outputs

ENDED_BY_TERM: Final = Verdict(128 + signal.SIGTERM, "The job was ended by SIGTERM.")
SAVED: Final = Verdict(RankExit.STOPPED_EARLY, "The ranks saved and stopped early.")


def ends_of(now: Generation | None) -> list[Ended]:
    """Return how ranks ended, as far as they did."""
    return list(now.ends.values()) if now else []


def failed(now: Generation | None) -> Verdict | None:
    """Return the verdict on the first rank that failed by itself; None if none did."""
    first = first_failure(ends_of(now))
    if first is None or now is None:
        return None
    return failure(first, now.node(first.rank))


def was_stopped(ends: Iterable[Ended]) -> bool:
    """Return whether a rank ended by our word, or Slurm's to the agents."""
    return any(end.stopped for end in ends)


def outputs(attempt: Attempt) -> Verdict:
    """Return the verdict on ranks that all ended well: whether the outputs are there."""
    folder = Path(attempt.plan.folder or attempt.place.run.root)
    missing = missing_outputs(attempt.plan.outputs, folder)
    if not missing:
        return Verdict(0)
    reason = f"All ranks ended well, but {missing[0]} is not there."
    attempt.tell(EventKind.OUTPUT_MISSING, reason, missing=list(missing))
    return Verdict(1, reason)
