"""Reports a rank that holds the others up for a while: nothing is done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hpcplat.eventlog import EventKind
from launchers.attempt import Attempt
from launchers.recovery.generation import Generation
from launchers.recovery.slow import Slow, slow_rank
from launchers.recovery.watch import Watch

WINDOW: Final = 15  # steps over which own times are averaged
WINDOWS: Final = 2  # in a row, until it is said


class SlowWatch:
    """Looks at one generation after another, window by window of steps."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._generation: Generation | None = None
        self._step, self._owns = 0, dict[int, float]()
        self._row: list[int] = []  # who was slow in the last windows
        self._told: int | None = None

    def look(self, now: Generation, watch: Watch, stages: int) -> None:
        """Close a window if enough steps were made, and report who was slow in it."""
        step, owns = watch.step(), watch.owns()
        if now is not self._generation:
            self._generation, self._row, self._told = now, [], None
            self._step = 0
        if not self._step:
            self._step, self._owns = step, owns
            return
        if step - self._step < WINDOW:
            return
        spent = _each(self._owns, owns, step - self._step)
        self._step, self._owns = step, owns
        self._judge(now, slow_rank(spent, stages, watch.usual()), step)

    def _judge(self, now: Generation, slow: Slow | None, step: int) -> None:
        if slow is None:
            self._row, self._told = [], None
            return
        self._row = [*self._row, slow.rank][-WINDOWS:]
        if self._row == [slow.rank] * WINDOWS and self._told != slow.rank:
            self._told = slow.rank
            self._tell(now, slow, step)

    def _tell(self, now: Generation, slow: Slow, step: int) -> None:
        node = now.node(slow.rank)
        self._attempt.tell(
            EventKind.RANK_SLOW,
            f"Rank {slow.rank} on {node} is slow: it works for {slow.own:.2f} s in a step, "
            f"others of its stage for {slow.peers:.2f} s and wait for it.",
            rank=slow.rank,
            node=node,
            step=step,
            own_seconds=slow.own,
            peers_seconds=slow.peers,
        )


def _each(
    before: Mapping[int, float], after: Mapping[int, float], steps: int
) -> dict[int, float]:
    """Return the own seconds of a step, of ranks that tell them."""
    return {
        rank: (own - before[rank]) / steps
        for rank, own in after.items()
        if own > 0 and rank in before
    }
