"""Jobs that were requeued, and shall start at once: Slurm lets them wait two minutes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.scontrol import START_PAUSE
from hpcplat.slurm.states import BaseState
from server.sightings import number
from server.spacing import Spacing

PATIENCE: Final = timedelta(seconds=90)  # a requeue passes through COMPLETING first
CLOSE: Final = timedelta(seconds=15)  # a killed job is back in the queue by then
AGAIN: Final = timedelta(seconds=10)  # each start asked for begins Slurm's anew
WAITS: Final = "BeginTime"  # Slurm's reason


def waits_after_requeue(record: LiveJob) -> bool:
    """Whether Slurm has a job back in the queue, and lets it wait before it starts."""
    is_pending = record.state.base is BaseState.PENDING
    return is_pending and bool(record.restarts) and record.reason == WAITS


class Hurrying:
    """Says which starts to ask for, and with what pause; each of them once."""

    def __init__(self) -> None:
        self._until: dict[int, datetime] = {}
        self._left: dict[int, datetime] = {}  # since when a job is known to be killed
        self._starts = Spacing(AGAIN)

    def hurry(self, slurm_job_id: int, now: datetime) -> None:
        """Let a job start as soon as it is back in the queue; it does not run now.

        Who says so round after round changes nothing: each start that is asked for puts
        Slurm's own off.
        """
        if slurm_job_id not in self._until:
            self._starts.forget(slurm_job_id)
        self._until[slurm_job_id] = now + PATIENCE
        self._left.setdefault(slurm_job_id, now)

    def is_close(self, now: datetime) -> bool:
        """Whether a job was just killed: it may be back in the queue any moment."""
        return any(now - at < CLOSE for at in self._left.values())

    def due(
        self, records: Iterable[LiveJob], asked_at: datetime
    ) -> list[tuple[str, int]]:
        """Return the addresses to start, and how many seconds from now on."""
        self._until = {job: end for job, end in self._until.items() if asked_at <= end}
        self._left = {job: at for job, at in self._left.items() if job in self._until}
        mine = (
            [one for one in records if number(one) in self._until]
            if self._until
            else []
        )
        found = []
        for record in mine:
            self._note(record, asked_at)
            is_due = record.reason == WAITS
            if is_due and self._starts.is_due(record.address, asked_at):
                found.append((record.address, self._pause(number(record), asked_at)))
        return found

    def _note(self, record: LiveJob, asked_at: datetime) -> None:
        """Take note of a job that runs again: its next kill is another one."""
        job, state = number(record), record.state
        runs = state.base is BaseState.RUNNING and "COMPLETING" not in state.flags
        if runs and self._left.get(job, asked_at) < asked_at:
            del self._left[job]

    def _pause(self, job: int, asked_at: datetime) -> int:
        since = (asked_at - self._left.setdefault(job, asked_at)).total_seconds()
        return math.ceil(min(max(START_PAUSE - since, 0), START_PAUSE))
