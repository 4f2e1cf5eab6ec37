"""When to save: every so many steps, or as often as failures and costs make it right."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import sqrt
from typing import Literal

from launchers.megatron.history import NOTHING_SEEN, History

FIRST = 60.0  # seconds
LONGEST = 1800.0
LARGEST_COST = 0.02  # of the run


@dataclass(slots=True)
class Cadence:
    """Says after each step whether to save now. ``every`` steps, or by measured costs.

    Automatic: the interval at which a run is available most of its time (see
    ``interval``), but no save costs more than 2 % of the time since the last one.
    """

    every: int | Literal["auto"]
    ranks: int
    history: History = NOTHING_SEEN
    interval: float = FIRST
    last: float = field(default_factory=time.monotonic)

    def due(self, step: int) -> bool:
        """Whether to save after ``step`` steps; automatic ones are rank 0's to say."""
        if self.every == "auto":
            return time.monotonic() - self.last >= self.interval
        return step % self.every == 0

    def saved(self, stall: float) -> None:
        """Take note of a save that held the step up for ``stall`` seconds."""
        self.last = time.monotonic()
        self.interval = interval(stall, self.ranks, self.history)

    def __str__(self) -> str:
        """Say when the next save is due, and why then."""
        if self.every != "auto":
            return f"The next is due after {self.every} steps."
        return (
            f"The next is due {self.interval:.0f} s after it: a failure is expected each "
            f"{self.history.between(self.ranks) / 3600:.1f} h, a recovery takes "
            f"{self.history.recovery:.0f} s ({self.history})."
        )


def interval(stall: float, ranks: int, history: History = NOTHING_SEEN) -> float:
    """Return the seconds between saves that lose the least time.

    Tc = Ts + sqrt(2 (Tf + Tr) Ts + Ts**2), with the cost of a save Ts, the time between
    failures Tf and the time of a recovery Tr (arXiv:2410.18124).
    """
    lost = history.between(ranks) + history.recovery
    best = stall + sqrt(2 * lost * stall + stall**2)
    return max(min(max(best, FIRST), LONGEST), stall / LARGEST_COST)
