"""The steps of all ranks, as beacons tell them, and the event of the first after a start."""

from __future__ import annotations

import time

from hpcplat.eventlog import EventKind
from launchers.attempt import Attempt
from launchers.messages import Beacon
from launchers.recovery.generation import Generation
from launchers.recovery.regrouping import Trouble
from launchers.recovery.watch import Watch


class Stepping:
    """What the ranks of the newest generation have done.

    ``since`` is when others were lost before them (Unix seconds), None at first.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.watch = Watch(attempt.plan.world)
        self.since: float | None = None

    def begin_anew(self, world: int) -> None:
        """Forget the ranks that were: others start."""
        self.watch = Watch(world)

    def tell_recovering(self, trouble: Trouble, what: str, resume: int) -> None:
        """Say what is done about a loss; a second one is part of the first.

        ``resume`` is the step of the copies that the ranks go on from (-1: none).
        """
        if self.since is None:
            self.since = trouble.began
        self._attempt.tell(
            EventKind.RECOVERING,
            what,
            lost=trouble.generation.lost,
            generation=trouble.generation.number + 1,
            began=trouble.began,
            copies_of_step=resume,
            last_step=self.watch.furthest(),
            last_at=self.last_at(),
            usual=self.watch.usual(),
        )

    def take(self, beacon: Beacon, now: Generation) -> bool:
        """Take note of a beacon; True when it shows the generation's first whole step."""
        self.watch.take(beacon, time.monotonic())
        if now.steps or not self.watch.step():
            return False
        now.steps = True
        self._tell()
        return True

    def last_at(self) -> float:
        """Return when all ranks had done their newest step (Unix seconds)."""
        return time.time() - (time.monotonic() - self.watch.stepped_at())

    def _tell(self) -> None:
        """Say that all ranks have done a step: the first, or again, and after how long."""
        since, self.since = self.since, None
        at, step = self.last_at(), self.watch.step()
        if since is None:
            what = f"All ranks have done a step: it is step {step}."
            self._attempt.tell(EventKind.STEPPING, what, step=step, at=at)
            return
        self._attempt.tell(
            EventKind.RECOVERED,
            f"All ranks have done a step again, {at - since:.2f} s after the loss.",
            seconds=at - since,
            step=step,
            at=at,
        )
