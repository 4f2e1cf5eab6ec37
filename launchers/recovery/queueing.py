"""Has Slurm start the job anew, on other nodes, unless it got nowhere several times."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Final

from hpcplat.eventlog import EventKind
from launchers.attempt import Attempt
from launchers.loop import Loop
from launchers.recovery.progress import attempts_without_progress
from launchers.recovery.requeue import requeue
from launchers.verdict import Verdict

REQUEUE_SECONDS: Final = 20.0  # until we believe that Slurm refused


class Queueing:
    """Asks once; ``asked`` is what the attempt comes to when Slurm ends us for it."""

    def __init__(
        self, attempt: Attempt, loop: Loop, end: Callable[[Verdict], None]
    ) -> None:
        self._attempt, self._loop, self._end = attempt, loop, end
        self.asked: Verdict | None = None

    def ask(self, verdict: Verdict, step: int, gone: Collection[str]) -> None:
        """Have Slurm start the job anew; it ends this attempt then."""
        if self.asked is not None:
            return
        self.asked = verdict
        self._attempt.tell(
            EventKind.REQUEUE_ASKED,
            f"{verdict.reason} The job goes back into the queue.",
            lost=sorted(gone),
            step=step,
        )
        most = max(self._attempt.plan.max_failures, 1)
        if attempts_without_progress(self._attempt.past()) >= most:
            reason = f"{verdict.reason} No checkpoint was added in several attempts."
            self._end(replace(verdict, code=1, reason=reason))
            return
        requeue(self._attempt.job)
        self._loop.later(REQUEUE_SECONDS, partial(self._end, verdict))
