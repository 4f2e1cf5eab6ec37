"""Which rank holds the others up; pure.

Ranks of one pipeline stage have the same work to do: one that takes much longer over it
than they do is slow. What counts is a rank's own time, without its waits for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

FACTOR: Final = 2.0  # times as long as its peers
SHARE: Final = 0.2  # of a step, that they could save


@dataclass(frozen=True, slots=True)
class Slow:
    """A rank that is slow: its own seconds in a step, and those of its peers."""

    rank: int
    own: float
    peers: float


def slow_rank(own: Mapping[int, float], stages: int, usual: float) -> Slow | None:
    """Return the slowest rank, if it is much slower than its peers.

    ``own`` are seconds of each rank in a step, ``usual`` is the length of one, ``stages``
    the number of pipeline stages; 0: not known, all ranks are peers.
    """
    found = []
    for rank, seconds in own.items():
        peers = _peers(rank, own, stages)
        typical = median(peers) if peers else seconds
        if seconds > FACTOR * typical and seconds - typical > SHARE * usual:
            found.append(Slow(rank, seconds, typical))
    return max(found, key=lambda slow: slow.own - slow.peers, default=None)


def _peers(rank: int, own: Mapping[int, float], stages: int) -> list[float]:
    """Return the other ranks' seconds: of the same stage (pipeline comes last in order).

    Alone in its stage, a rank is held against all.
    """
    world, count = len(own), max(stages, 1)
    same = [
        seconds
        for other, seconds in own.items()
        if other != rank and other * count // world == rank * count // world
    ]
    return same or [seconds for other, seconds in own.items() if other != rank]
