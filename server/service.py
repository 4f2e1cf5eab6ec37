"""The living service: database, cluster, the submitter and the reconcile loop."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from hpcplat.errors import HpcplatError, UnavailableError
from hpcplat.jobs import JobSpec, spec_of
from hpcplat.sitepolicy import SitePolicy
from hpcplat.slurm.scheduler import Scheduler, Submission
from server import auth
from server.admission import policy_for
from server.database import Database
from server.judgement import Patience
from server.metrics import Metrics
from server.preparation import (
    Fill,
    Other,
    after_part,
    choose,
    dependency_option,
    fill_folder,
    part_before,
    prepare,
)
from server.queries import jobs, recovery
from server.queries.submissions import Work
from server.quotabook import QuotaBook
from server.quotas import Book
from server.reconcile import Look, Reconciler, Rhythm
from server.remembering import Remembered
from server.secretkeeping import SecretKeeper
from server.site import Site
from server.submission import Pace, Submitter

logger = logging.getLogger("hpcplat.service")

LAST_LOOK: Final = 2.0  # seconds that the end waits for a question to Slurm
GLANCE: Final = 0.5  # seconds between looks at the beacons of jobs
HURRIED: Final = 0.3  # seconds between questions while a job is about to start again
LEFT_OUT: Final = timedelta(hours=1)  # for how long a node that died gets no new job
HISTORY: Final = timedelta(days=90)  # in which nodes that died are counted
HISTORY_FRESH: Final = 600.0  # seconds that their number is believed
DEAD_FRESH: Final = 1.0  # seconds that the list of dead nodes is believed
ACCOUNT_BELIEVED: Final = 5.0  # seconds that a workspace's account is believed
FRESH_ENOUGH: Final = 1.0  # seconds that an embedded service believes its rows

# A user's number, whether they administer, and the workspace that they name.
AccountKey = tuple[int, bool, str | None]


@dataclass(frozen=True, slots=True)
class Times:
    """All the times that a service keeps to."""

    patience: Patience = field(default_factory=Patience)
    pace: Pace = field(default_factory=Pace)
    rhythm: Rhythm = field(default_factory=Rhythm)


class Service:
    """One service on one cluster.

    ``start`` runs threads: a site's service. Embedded in a command that soon ends
    there are none: ``refresh`` does a round of their work when somebody asks.
    """

    def __init__(  # noqa: PLR0913 - what a service is made of
        self,
        database: Database,
        scheduler: Scheduler,
        *,
        runs: str,
        policy: SitePolicy | None = None,
        times: Times | None = None,
        workers: int = 2,
        fill: Fill | None = None,
    ) -> None:
        self.database = database
        self.runs = runs
        self.policy = policy or SitePolicy()
        self.times = times or Times()
        self.workers = workers
        self.metrics = Metrics()
        self.identity = auth.own_identity(is_proxy=fill is not None)
        self.fill: Fill = fill or fill_folder
        self.holder = secrets.token_hex(8)
        self.site = Site(scheduler)
        self.quotas = QuotaBook(self.site)
        self.submitter = Submitter(
            database,
            self.site,
            self._prepare,
            self.times.pace,
            self.metrics,
            self._choose,
        )
        self.reconciler = Reconciler(
            database,
            self.site,
            self.holder,
            self.times.patience,
            self.times.pace,
            self.metrics,
        )
        self.accounts = Remembered[AccountKey, str](ACCOUNT_BELIEVED)
        self.secret_keeper = SecretKeeper(database, self.fill, self.submits_as)
        self.is_running = False
        self._stopping = threading.Event()
        self._nudged = threading.Event()
        self._loop: threading.Thread | None = None
        self._round = threading.Lock()
        self._last_round = 0.0
        self._dead = Remembered[str, Sequence[str]](DEAD_FRESH)
        self._history = Remembered[str, tuple[int, float]](HISTORY_FRESH)

    def start(self) -> None:
        """Start the threads: submission at once, and the reconcile loop."""
        self.is_running = True
        self._stopping.clear()
        self.submitter.start(self.workers)
        self._loop = threading.Thread(target=self._run, name="reconcile", daemon=True)
        self._loop.start()

    def stop(self) -> None:
        """End what is in hand, stop the threads, let others lead, close."""
        self._stopping.set()
        self._nudged.set()
        self.submitter.stop()
        if self._loop is not None:
            self._loop.join(LAST_LOOK)
        self.is_running = False
        try:
            self.reconciler.give_up()
        except (HpcplatError, SQLAlchemyError) as error:
            logger.warning("the lease stays until it ends by itself: %s", error)
        self.database.close()

    def queued(self) -> None:
        """Say that there is something to submit."""
        if self.is_running:
            self.submitter.wake()

    def look_soon(self) -> None:
        """Have Slurm asked now: somebody did something to a job there."""
        self.queued()
        if self.is_running:
            self._nudged.set()

    def refresh(self, *, at_once: bool = False) -> None:
        """Do a round of the threads' work where there are none (embedded).

        Does nothing if the rows were made true less than a second ago.
        """
        if self.is_running:
            return
        with self._round:
            if not at_once and time.monotonic() - self._last_round < FRESH_ENOUGH:
                return
            self.submitter.drain()
            try:
                self._look()
            except UnavailableError as error:
                self.reconciler.degraded = str(error)
            self._last_round = time.monotonic()

    def policy_for(self, spec: JobSpec) -> SitePolicy:
        """Return the site's policy for a job, with what Slurm itself says filled in."""
        return policy_for(self.policy, self.site.facts(), spec)

    def folder_of(self, user: str, job_id: str) -> str:
        """Return the run folder of a new job."""
        return (
            f"{self.runs}/{user}/{job_id}"
            if self.serves_others
            else (f"{self.runs}/{job_id}")
        )

    @property
    def serves_others(self) -> bool:
        """Whether jobs of several people run through this service."""
        return self.identity.serves_others

    def submits_as(self, user: str) -> str | None:
        """Return whom sbatch must be told to submit as; None where that is us."""
        is_another = self.serves_others and user != self.identity.name
        return user if is_another else None

    def quota_book(self) -> Book | None:
        """Return Slurm's limits; None where it enforces none, or does not answer.

        Then nothing is refused here: Slurm itself holds to them, whoever asks.
        """
        try:
            return self.quotas.book()
        except UnavailableError as error:
            logger.warning("admission does not know Slurm's limits: %s", error)
            return None

    def look_age(self) -> float:
        """Return the seconds since Slurm was last seen whole; infinite if never."""
        last = self.reconciler.last_look
        return (datetime.now(UTC) - last).total_seconds() if last else float("inf")

    def is_database_current(self) -> bool:
        """Tell whether the database answers and has this release's tables."""
        try:
            return self.database.is_current()
        except (UnavailableError, SQLAlchemyError):
            return False

    def _prepare(self, work: Work) -> Submission:
        spec = self._without_dead_nodes(spec_of(work.spec), work.cluster)
        policy = self.policy_for(spec)
        if spec.kind == "train":
            policy = self._with_history(policy, work.cluster)
        dependency = self._dependency(work, spec, policy)
        return prepare(
            work, spec, policy, dependency, self.submits_as(work.user), self.fill
        )

    def _choose(self, work: Work, slurm_job_id: int) -> None:
        choose(work, slurm_job_id, self.submits_as(work.user), self.fill)

    def _without_dead_nodes(self, spec: JobSpec, cluster: str) -> JobSpec:
        """Leave out nodes that died lately; never so many that the job can't run."""
        dead = self._dead_nodes(cluster)
        room = len(self.site.facts().nodes) - spec.resources.all_nodes
        if not dead or room <= 0:
            return spec
        left_out = (*spec.resources.exclude, *dead[:room])
        resources = spec.resources.model_copy(update={"exclude": left_out})
        return spec.model_copy(update={"resources": resources})

    def _dead_nodes(self, cluster: str) -> Sequence[str]:
        """Return the nodes that died lately, as of the last few seconds."""
        known = self._dead.get(cluster)
        if known is None:
            since = datetime.now(UTC) - LEFT_OUT
            with self.database.read() as session:
                dead = recovery.dead_nodes(session, cluster, since)
            known = self._dead.keep(cluster, dead)
        return known

    def _with_history(self, policy: SitePolicy, cluster: str) -> SitePolicy:
        """Add the nodes that died under trainings here to those that the site tells."""
        known = self._history.get(cluster)
        if known is None:
            now = datetime.now(UTC)
            with self.database.read() as session:
                found = recovery.node_history(session, cluster, now - HISTORY, now)
            known = self._history.keep(cluster, found)
        failures, hours = known
        return policy.model_copy(
            update={
                "node_failures": policy.node_failures + failures,
                "node_hours": policy.node_hours + hours,
            }
        )

    def _dependency(self, work: Work, spec: JobSpec, policy: SitePolicy) -> str:
        """Return what the submission waits for: other jobs, and earlier parts."""
        named = [d for d in spec.dependencies if not d.job.startswith("slurm:")]
        before = part_before(work.part, spec, policy)
        if not spec.dependencies and before is None:
            return ""
        with self.database.read() as session:
            others = {d.job: Other(*jobs.standing(session, d.job)) for d in named}
            earlier = (
                None if before is None else jobs.part_id(session, work.job_id, before)
            )
        words = [dependency_option(spec.dependencies, others)]
        if before is not None:
            words.append(after_part(earlier))
        return ",".join(filter(None, words))

    def _run(self) -> None:
        pause = self.times.rhythm.fastest
        while not self._stopping.is_set():
            pause = self._one_round(pause)
            try:
                self._wait(pause)
            except Exception:  # nor is one bad wait: the next round says more
                logger.exception("waiting for the next round failed")
                self._stopping.wait(pause)
            self._nudged.clear()

    def _wait(self, seconds: float) -> None:
        """Wait for the next round, but no longer than the jobs' own beacons allow."""
        if self.reconciler.is_hurrying():
            seconds = min(seconds, HURRIED)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._nudged.wait(min(left, GLANCE)):
                return
            if self.reconciler.recovery.is_alarmed():
                return

    def _one_round(self, pause: float) -> float:
        try:
            look = self._look()
            self.quotas.keep_fresh()
        except UnavailableError as error:
            self.reconciler.degraded = str(error)
            return self.times.rhythm.slowest
        except Exception:  # the loop must live: one bad round is not the last
            logger.exception("a reconcile round failed")
            self.reconciler.degraded = "A round failed: see the service's log."
            return self.times.rhythm.slowest
        return self.times.rhythm.after(pause, moved=look.moved, busy=look.busy)

    def _look(self) -> Look:
        look = self.reconciler.step()
        if look.leads:
            self.secret_keeper.wipe_ended(self.site.name)
        return look

    def outcomes(self) -> Mapping[str, float]:
        """Return how many submissions went how, since the start."""
        return dict(self.submitter.counts)
