"""One cluster as the service sees it: its scheduler, and facts that change slowly."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hpcplat.errors import HpcplatError, UnavailableError
from hpcplat.slurm.scheduler import Health, Node, Partition, Scheduler

logger = logging.getLogger("hpcplat.site")

FRESH_SECONDS: Final = 10.0
STALE_SECONDS: Final = 600.0  # of facts that are used while Slurm does not answer
MARK: Final = "hpcplat:"  # begins the reason of a node that we set down
RETRY_SECONDS: Final = 5.0  # after a failure; who asks meanwhile need not wait for it


@dataclass(frozen=True, slots=True)
class Facts:
    """What admission and the listings need to know of a cluster."""

    nodes: Sequence[Node]
    partitions: Sequence[Partition]
    config: Mapping[str, str]

    @property
    def max_array_size(self) -> int:
        """Slurm's MaxArraySize: the highest index of an array is one less."""
        return _number(self.config.get("MaxArraySize", ""), 1001)

    @property
    def min_job_age(self) -> float:
        """For how many seconds squeue remembers a job that has ended."""
        return float(_number(self.config.get("MinJobAge", ""), 300))

    @property
    def has_accounting(self) -> bool:
        """Whether ended jobs are kept in a database that sacct can ask."""
        return self.config.get("AccountingStorageType", "").endswith("slurmdbd")


class Site:
    """A cluster: answers are kept for some seconds, and asked for once at a time."""

    def __init__(
        self, scheduler: Scheduler, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.scheduler = scheduler
        self._clock = clock
        self._lock = threading.Lock()
        self._facts: tuple[float, Facts] | None = None
        self._failure: tuple[float, UnavailableError] | None = None
        self._health: tuple[float, Health] | None = None

    @property
    def name(self) -> str:
        """The cluster's name; raises UnavailableError if Slurm never answered."""
        known = self._facts
        facts = known[1] if known else self.facts()
        return facts.config.get("ClusterName", "cluster")

    def facts(self) -> Facts:
        """Return nodes, partitions and configuration, at most some seconds old.

        While Slurm does not answer, older ones do for ten minutes; then, or when
        there are none, UnavailableError is raised.
        """
        known = self._facts
        if known is not None and self._clock() - known[0] < FRESH_SECONDS:
            return known[1]
        with self._lock:
            return self._refreshed(known)

    def health(self) -> Health:
        """Return whether Slurm answers, as of the last few seconds."""
        known = self._health
        if known is None or self._clock() - known[0] >= FRESH_SECONDS / 2:
            known = self._health = (self._clock(), self.scheduler.health())
        return known[1]

    def set_down(self, node: str, why: str) -> bool:
        """Set a node down, so that Slurm lets go of it; False where we may not."""
        try:
            self.scheduler.set_node_state(node, "down", f"{MARK} {why}")
        except HpcplatError as error:
            logger.info("%s can't be set down: %s", node, error)
            return False
        return True

    def _refreshed(self, seen: tuple[float, Facts] | None) -> Facts:
        known = self._facts
        if known is not None and known is not seen:
            return known[1]  # somebody else asked while we waited
        if self._failure and self._clock() - self._failure[0] < RETRY_SECONDS:
            return self._older(known, self._failure[1])
        try:
            facts = Facts(
                self.scheduler.nodes(),
                self.scheduler.partitions(),
                self.scheduler.config(),
            )
        except UnavailableError as error:
            self._failure = (self._clock(), error)
            return self._older(known, error)
        self._facts = (self._clock(), facts)
        return facts

    def _older(
        self, known: tuple[float, Facts] | None, error: UnavailableError
    ) -> Facts:
        if known is None or self._clock() - known[0] > STALE_SECONDS:
            raise UnavailableError(error.what, error.remedy) from error
        return known[1]


def _number(text: str, default: int) -> int:
    digits = text.split()[0] if text.split() else ""
    return int(digits) if digits.isdecimal() else default
