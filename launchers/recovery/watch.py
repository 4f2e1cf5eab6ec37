"""What the coordinator knows of the ranks by their agents' beacons; pure, clock given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from hpcplat.pulse import Phase
from launchers.messages import Beacon

STEPS_KEPT: Final = 64  # of which the median is the usual length of a step
FLOOR: Final = 5.0  # seconds of silence that are never called a hang


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank by its newest beacon; ``beat`` by our clock (monotonic seconds)."""

    step: int
    phase: Phase
    beat: float
    state: str


@dataclass(slots=True)
class Watch:
    """The ranks of one generation, and how long their steps take."""

    world: int
    ranks: dict[int, RankState] = field(default_factory=dict)
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    _counted: tuple[int, float] | None = None

    def take(self, beacon: Beacon, now: float) -> None:
        """Take note of a beacon that came at ``now``."""
        for rank, step, phase, age, state in zip(
            beacon.ranks,
            beacon.steps,
            beacon.phases,
            beacon.ages,
            beacon.states,
            strict=True,
        ):
            self.ranks[rank] = RankState(step, Phase(phase), now - age, state)
        self._measure()

    def step(self) -> int:
        """Return the step that every rank has done; 0 while one has done none."""
        if len(self.ranks) < self.world:
            return 0
        return min(rank.step for rank in self.ranks.values())

    def stepped_at(self) -> float:
        """Return when the last of the ranks beat."""
        return max(rank.beat for rank in self.ranks.values())

    def usual(self) -> float:
        """Return the usual length of a step, in seconds; 0 while it is not known."""
        return median(self.lengths) if self.lengths else 0.0

    def patience(self, floor: float = FLOOR) -> float:
        """Return how long a step may take before somebody is called hung."""
        return max(3 * self.usual() + 1.0, floor)

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
