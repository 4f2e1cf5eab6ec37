"""Slurm's limits and their use as the service knows them: cached, never old."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hpcplat.errors import UnavailableError
from hpcplat.slurm.scheduler import Qos
from server.quotas import Book, book_of
from server.site import Site

logger = logging.getLogger("hpcplat.quotas")

REFRESH: Final = 10.0  # seconds: older ones are renewed beside the requests
STALE: Final = 30.0  # seconds: older ones are never used
KEPT: Final = 600.0  # seconds after the last request that it is kept as fresh as that
QUIET: Final = (
    20.0  # seconds: so old it may grow when nobody asks; the loop sees it late
)
RETRY: Final = 5.0  # seconds after a failure before Slurm is asked again


class QuotaBook:
    """The book of a cluster.

    A request finds it in memory; from 10 seconds on a thread renews it, and no
    request waits for that until it is 30 seconds old. A service keeps it from growing
    so old (``keep_fresh``), at half the pace while nobody submits: no request waits.
    """

    def __init__(self, site: Site, clock: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._clock = clock
        self._known: tuple[float, Book] | None = None
        self._wanted_at = -KEPT
        self._renewing_at = -KEPT  # when a thread was last told to
        self._failure: tuple[float, UnavailableError] | None = None
        self._asking = threading.Lock()

    def book(self) -> Book | None:
        """Return the limits, at most 30 seconds old; None where nothing enforces any.

        Raises UnavailableError when Slurm does not tell.
        """
        enforced = enforced_by(self._site.facts().config)
        if not enforced:
            return None
        self._wanted_at = self._clock()
        known = self._known
        age = self._clock() - known[0] if known else float("inf")
        if known is not None and age < REFRESH:
            return known[1]
        if known is not None and age < STALE:
            self._renew_beside()
            return known[1]
        with self._asking:
            if self._known is not None and self._known is not known:
                return self._known[1]  # somebody else asked while we waited
            self._refuse_after_failure()
            return self._remembering(enforced)

    def _refuse_after_failure(self) -> None:
        """Fail at once for some seconds: not every request need wait for the same."""
        error = self._failed_lately()
        if error:
            raise UnavailableError(error.what, error.remedy) from error

    def _failed_lately(self) -> UnavailableError | None:
        is_new = self._failure and self._clock() - self._failure[0] < RETRY
        return self._failure[1] if self._failure and is_new else None

    def _remembering(self, enforced: frozenset[str]) -> Book:
        try:
            return self._renewed(enforced)
        except UnavailableError as error:
            self._failure = (self._clock(), error)
            raise

    def keep_fresh(self) -> None:
        """Renew it, beside, if it grows old, or was never asked for."""
        now = self._clock()
        pace = REFRESH if now - self._wanted_at < KEPT else QUIET
        asked_at = max(self._known[0] if self._known else -KEPT, self._renewing_at)
        if now - asked_at >= pace and not self._failed_lately():
            self._renew_beside()

    def forget(self) -> None:
        """Have the next look ask Slurm: its limits were changed."""
        self._known = None

    def _renew_beside(self) -> None:
        if self._asking.acquire(blocking=False):
            self._renewing_at = self._clock()
            threading.Thread(target=self._renew, name="quotas", daemon=True).start()

    def _renew(self) -> None:
        try:
            enforced = enforced_by(self._site.facts().config)
            if enforced:
                self._renewed(enforced)
        except UnavailableError as error:
            self._failure = (self._clock(), error)
            logger.warning("Slurm does not tell its limits: %s", error)
        finally:
            self._asking.release()

    def _renewed(self, enforced: frozenset[str]) -> Book:
        asked_at = self._clock()  # the age counts from the question, not the answer
        scheduler = self._site.scheduler
        facts = self._site.facts()
        qos = scheduler.qos()
        book = book_of(
            scheduler.associations(),
            qos,
            facts.partitions,
            scheduler.shares(),
            scheduler.jobs(),
            {
                node.name: next(iter(node.gpus))
                for node in facts.nodes
                if len(node.gpus) == 1
            },
            enforced,
            scheduler.qos_minutes() if _has_minutes(qos) else {},
        )
        self._known = (asked_at, book)
        return book


def _has_minutes(qos: Iterable[Qos]) -> bool:
    """Whether some QOS limits minutes: else nobody need ask what is used of them."""
    return any("GrpTRESMins" in each.limits for each in qos)


def enforced_by(config: Mapping[str, str]) -> frozenset[str]:
    """Return what Slurm enforces of accounting (AccountingStorageEnforce)."""
    text = config.get("AccountingStorageEnforce", "").lower()
    words = frozenset(text.replace("|", ",").split(","))
    return words & {"associations", "limits", "qos", "safe"}
