"""What the coordinator knows of the ranks by their agents' beacons; pure, clock given."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from hpcplat.pulse import Phase
from launchers.messages import Beacon

STEPS_KEPT: Final = 64  # of which the median is the usual length of a step
# Seconds of silence that are never called a hang: a slow disk, a garbage collection. A
# process that is stopped does not come back by itself, and gets no such grace.
FLOOR: Final = 10.0
# Seconds more than three steps, for one that is stopped: it is to be named within a second,
# and half of one goes by until a beacon tells of it and somebody looks.
STOPPED: Final = 0.5


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank by its newest beacon; ``beat`` by our clock (monotonic seconds).

    ``own`` are the seconds of its steps without waits, since it started.
    """

    step: int
    phase: Phase
    beat: float
    state: str
    own: float = 0.0


@dataclass(slots=True)
class Watch:
    """The ranks of one generation, and how long their steps take."""

    world: int
    ranks: dict[int, RankState] = field(default_factory=dict)
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    _counted: tuple[int, float] | None = None

    def take(self, beacon: Beacon, now: float) -> None:
        """Take note of a beacon that came at ``now``."""
        owns = beacon.owns or (0.0,) * len(beacon.ranks)
        for rank, step, phase, age, state, own in zip(
            beacon.ranks,
            beacon.steps,
            beacon.phases,
            beacon.ages,
            beacon.states,
            owns,
            strict=True,
        ):
            self.ranks[rank] = RankState(step, Phase(phase), now - age, state, own)
        self._measure()

    def step(self) -> int:
        """Return the step that every rank has done; 0 while one has done none."""
        if len(self.ranks) < self.world:
            return 0
        return min(rank.step for rank in self.ranks.values())

    def furthest(self) -> int:
        """Return the newest step that any rank has done: of the dead little is known."""
        return max((rank.step for rank in self.ranks.values()), default=0)

    def owns(self) -> dict[int, float]:
        """Return each rank's own seconds so far."""
        return {rank: one.own for rank, one in self.ranks.items()}

    def stepped_at(self) -> float:
        """Return when the last of the ranks beat; now if none has."""
        beats = [rank.beat for rank in self.ranks.values() if rank.step]
        return max(beats, default=time.monotonic())

    def usual(self) -> float:
        """Return the usual length of a step, in seconds; 0 while it is not known."""
        return median(self.lengths) if self.lengths else 0.0

    def patience(self) -> float:
        """Return how long a step may take before somebody is called hung."""
        usual = 3 * self.usual()
        return usual + STOPPED if self.stopped() else max(usual + 1.0, FLOOR)

    def stalled(self, now: float) -> bool:
        """Whether all have done a step, and then none for longer than is usual.

        Ranks that evaluate or save may take as long as they want.
        """
        if not self.step() or any(r.phase is not Phase.TRAINING for r in self._known()):
            return False
        newest = max(rank.beat for rank in self._known())
        return now - newest > self.patience()

    def stopped(self) -> list[int]:
        """Return the ranks whose processes are stopped, by a signal or a debugger."""
        return [rank for rank, one in self.ranks.items() if one.state in "Tt"]

    def is_at_work(self, ranks: Collection[int], now: float) -> bool:
        """Whether other ranks than these did a step just now: then these live too."""
        others = (one for rank, one in self.ranks.items() if rank not in ranks)
        return any(now - one.beat < 2 * self.usual() + 1.0 for one in others)

    def _known(self) -> Collection[RankState]:
        return self.ranks.values()

    def _measure(self) -> None:
        """Note the mean length of the steps since the last look."""
        step = self.step()
        if not step:
            return
        at = self.stepped_at()
        if self._counted is not None and step > self._counted[0]:
            before, when = self._counted
            self.lengths.append((at - when) / (step - before))
        if self._counted is None or step > self._counted[0]:
            self._counted = (step, at)


def silent(
    heard: Iterable[tuple[str, float]], now: float, patience: float
) -> list[str]:
    """Return the nodes whose agents said nothing for so long."""
    return [node for node, when in heard if now - when > patience]
