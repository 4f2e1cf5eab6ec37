"""What is known of failures when a run starts: the cluster's, and those of this job."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from hpcplat import eventlog
from hpcplat.allocation import RankPlacement
from hpcplat.errors import HpcplatError
from hpcplat.launchplan import read_plan
from hpcplat.ledger import Ledger, ledger

# One interruption in about 50,000 hours of a GPU: 419 in 54 days on 16,384 of them
# (Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.4).
GPU_HOURS: Final = 50_000
RECOVERY: Final = 60.0  # seconds; through Slurm, from a checkpoint on disk


@dataclass(frozen=True, slots=True)
class History:
    """Failures that were seen in so many hours of ranks, and recoveries (seconds each).

    What is usual elsewhere (GPU_HOURS, RECOVERY) counts as one more of each: the mean of
    a gamma distribution that begins there, and holds on to it less the more is seen.
    """

    failures: int = 0
    rank_hours: float = 0.0
    recoveries: tuple[float, ...] = ()

    def between(self, ranks: int) -> float:
        """Return the seconds from one failure of so many ranks to the next."""
        hours = (GPU_HOURS + self.rank_hours) / (1 + self.failures)
        return hours * 3600 / ranks

    @property
    def recovery(self) -> float:
        """Return the seconds that a recovery takes."""
        return fmean((RECOVERY, *self.recoveries))

    def __str__(self) -> str:
        """Say what was seen, as the end of a sentence."""
        return (
            f"{self.failures} failures in {self.rank_hours:.0f} hours of ranks and "
            f"{len(self.recoveries)} recoveries from disk seen"
        )


NOTHING_SEEN: Final = History()


def history_of(place: RankPlacement) -> History:
    """Return what the run folder tells: the service's count, and the job's own events."""
    try:
        plan = read_plan(place.run_folder.plan)
        failures, hours = plan.node_failures, plan.node_hours * plan.ranks_per_node
    except HpcplatError:  # by hand: there is no plan
        failures, hours = 0, 0.0
    events, _ = eventlog.read_all(place.run_folder.events)
    return with_own(History(failures, hours), ledger(events, time.time()), place)


def with_own(known: History, book: Ledger, place: RankPlacement) -> History:
    """Add a job's own failures, and its recoveries from checkpoints on disk."""
    downs = (f.down - f.redo for f in book.failures if not f.from_memory)
    return History(
        known.failures + len(book.failures),
        known.rank_hours + book.total * place.world_size / 3600,
        tuple(downs),
    )
