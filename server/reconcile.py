"""The loop that keeps rows true: one question to Slurm, then what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from hpcplat.errors import HpcplatError, UnavailableError
from hpcplat.slurm.scheduler import LiveJob, PastJob
from hpcplat.slurm.states import has_ended
from server.database import Database
from server.deadnodes import DeadNodes
from server.hurrying import Hurrying
from server.judgement import Patience, Report, Sight, Verdict, judge, with_report
from server.metrics import Metrics
from server.onebyone import apart
from server.queries import arrivals, leases, submissions, verdicts
from server.queries.submissions import Watched
from server.queries.verdicts import Judged
from server.recovery import Recovery
from server.reports import report_of
from server.requeueing import Requeueing
from server.settling import Settled, dead, settle
from server.sightings import OpenStarts, Told, by_key, number, past_by_key, past_number
from server.site import Site
from server.spacing import Spacing
from server.states import Sending, State
from server.submission import Pace
from server.tables import Submission

logger = logging.getLogger("hpcplat.reconcile")

LEASE: Final = timedelta(seconds=15)
BATCH: Final = 200  # verdicts written in one transaction
MOST_IDS: Final = 400  # job ids that sacct is asked for by name
CANCEL_AGAIN: Final = timedelta(seconds=10)
MARGIN: Final = timedelta(hours=1)  # clocks of the service and of Slurm may differ


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often Slurm is asked: quickly while something moves, rarely when idle."""

    fastest: float = 1.0
    slowest: float = 4.0  # so that a change is seen within 5, the asking included
    idle: float = 4.0  # then only the database is asked: is there work?

    def after(self, last: float, moved: bool, busy: bool) -> float:
        """Return the seconds until the next question."""
        if not busy:
            return self.idle
        return (
            self.fastest if moved else min(max(last, self.fastest) * 1.3, self.slowest)
        )


@dataclass(frozen=True, slots=True)
class Look:
    """How a round went: whether this service leads, has work, and saw a change."""

    leads: bool
    busy: bool = False
    moved: bool = False


class Reconciler:
    """Watches all submissions of one cluster; one service at a time does (a lease)."""

    def __init__(
        self,
        database: Database,
        site: Site,
        holder: str,
        patience: Patience,
        pace: Pace,
        metrics: Metrics,
    ) -> None:
        self.metrics = metrics
        self.database = database
        self.site = site
        self.holder = holder
        self.patience = patience
        self.pace = pace
        self.degraded = ""  # why the picture is not whole, in words
        self.last_look: datetime | None = None
        self._lease = ""
        self._stored: dict[int, Judged] = {}
        self._open = OpenStarts()
        self._nodes = DeadNodes(site)
        self.recovery = Recovery(database, site, self.hurry, metrics, self._nodes)
        self.requeueing = Requeueing(database, site, self.hurry, self._nodes)
        self._hurrying = Hurrying()
        self._foreign: set[str] = set()
        self._cancels = Spacing(CANCEL_AGAIN)

    def step(self) -> Look:
        """Ask Slurm once, if this service leads, and write what follows from it."""
        cluster = self.site.name
        lease = self._lease = f"reconcile:{cluster}"
        with self.database.write() as session:
            if not leases.take(session, lease, self.holder, _now(), LEASE):
                return Look(leads=False)
            watched = submissions.in_hand(session, cluster)
        if not watched:
            self.last_look = _now()
            return Look(leads=True)
        try:
            told = self._ask(watched)
        except UnavailableError as error:
            self.degraded = f"Slurm does not answer: {error.what}"
            return Look(leads=True, busy=True)
        moved = self._settle_doubts(watched, told)
        self._nodes.new_round()
        moved += self.recovery.look(watched, told.live)
        moved += self.requeueing.look(watched, told.live)
        moved += self._judge(watched, told, lease)
        moved += self._mend(watched, told)
        self.last_look = told.asked_at
        return Look(leads=True, busy=True, moved=moved > 0)

    def hurry(self, slurm_job_id: int) -> None:
        """Let a requeued job start at once, when it is back in the queue."""
        self._hurrying.hurry(slurm_job_id, _now())

    def is_hurrying(self) -> bool:
        """Whether a requeued job may be back in the queue any moment."""
        return self._hurrying.is_close(_now())

    def give_up(self) -> None:
        """Let another service lead at once."""
        if self._lease:
            with self.database.write() as session:
                leases.give_up(session, self._lease, self.holder, _now())

    def _ask(self, watched: Sequence[Watched]) -> Told:
        """Ask squeue, and sacct too where a job left the queue: one question each."""
        asked_at = _now()
        with self.metrics.query("jobs"):
            live = by_key(self.site.scheduler.jobs(finished=True), watched)
        self.degraded = ""
        if not self.site.facts().has_accounting:
            self.degraded = (
                "This cluster keeps no accounting: how a job ended is known only"
                " while the controller remembers it."
            )
            return Told(asked_at, live, None)
        asked = [w for w in watched if self._needs_history(w, live, asked_at)]
        if not asked:
            return Told(asked_at, live, {})
        return Told(asked_at, live, self._history(asked, asked_at))

    def _history(
        self, asked: Sequence[Watched], now: datetime
    ) -> Mapping[str, list[PastJob]] | None:
        since = min(w.sent_at or w.claimed_at or now for w in asked) - MARGIN
        ids = [w.slurm_job_id for w in asked if w.slurm_job_id is not None]
        if len(ids) < len(asked) or len(ids) > MOST_IDS:
            ids = []  # a key in doubt has no id yet: all jobs since then are looked at
        try:
            with self.metrics.query("history"):
                records = self.site.scheduler.history(since, ids)
        except UnavailableError as error:
            self.degraded = f"Accounting does not answer: {error.what}"
            return None
        return past_by_key(records, asked)

    def _needs_history(
        self, watched: Watched, live: Mapping[str, list[LiveJob]], now: datetime
    ) -> bool:
        records = live.get(watched.key, ())
        if watched.state != Sending.SENT:
            return not records and now >= dead(watched, self.pace, now)
        records = [r for r in records if number(r) == watched.slurm_job_id]
        if all(has_ended(record.state) for record in records):
            return True
        if watched.submission_id not in self._stored:
            return any(record.restarts for record in records)
        return self._open.are_hidden(watched.submission_id, records)

    def _settle_doubts(self, watched: Sequence[Watched], told: Told) -> int:
        doubts = [w for w in watched if w.state != Sending.SENT]
        if not doubts:
            return 0
        facts = self.site.facts()
        remembered = timedelta(seconds=facts.min_job_age) / 2
        moved = 0
        for doubt in doubts:
            with apart(doubt.job_id, "settling"):
                settled = settle(
                    doubt,
                    told,
                    self.pace,
                    self.patience.confirm,
                    facts.has_accounting,
                    remembered,
                )
                moved += self._write_settled(doubt, settled)
        return moved

    def _write_settled(self, doubt: Watched, settled: Settled) -> int:
        if settled.step == "wait" and settled.missed_at == doubt.missed_at:
            return 0
        now = _now()
        with self.database.write() as session:
            if not submissions.unchanged(session, doubt):
                return 0
            if settled.step == "wait":
                submissions.missed(session, doubt.submission_id, settled.missed_at)
            elif settled.step == "found":
                found = {doubt.submission_id: settled.slurm_job_id}
                arrivals.note(session, found, now)
            elif settled.step == "unknown":
                submissions.given_up(session, doubt.submission_id, now)
            else:
                submissions.queued_again(
                    session,
                    doubt.submission_id,
                    "Slurm does not have the job; it is submitted again.",
                    now,
                    now + self.pace.pause(doubt.tries),
                )
        return 1

    def _judge(self, watched: Sequence[Watched], told: Told, lease: str) -> int:
        facts = self.site.facts()
        fresh = []
        for one in watched:
            if one.state != Sending.SENT:
                continue
            with apart(one.job_id, "judging"):
                judged = self._judged(one, told, facts.has_accounting)
                if _is_written(one, judged):
                    self._stored.setdefault(one.submission_id, judged)
                if judged != self._stored.get(one.submission_id):
                    fresh.append(judged)
        for start in range(0, len(fresh), BATCH):
            if not self._store(fresh[start : start + BATCH], lease):
                return 0
        gone = self._stored.keys() - {one.submission_id for one in watched}
        for submission_id in gone:
            del self._stored[submission_id]
        self._open.forget(gone)
        return len(fresh)

    def _judged(self, watched: Watched, told: Told, has_accounting: bool) -> Judged:
        live = tuple(
            record
            for record in told.live.get(watched.key, ())
            if number(record) == watched.slurm_job_id
        )
        missed_at = None if live else watched.missed_at or told.asked_at
        past = None if told.past is None else tuple(told.past.get(watched.key, ()))
        sight = Sight(
            live=live,
            past=past,
            has_accounting=has_accounting,
            absent_for=told.asked_at - missed_at if missed_at else None,
            last_word=watched.seen,
            now=told.asked_at,
            offset=watched.offset,
        )
        verdict = judge(sight, self.patience)
        if verdict.state is State.FAILED:
            verdict = with_report(verdict, self._report(watched, verdict))
        return Judged(watched.submission_id, watched.job_id, verdict, missed_at)

    def _report(self, watched: Watched, verdict: Verdict) -> Report | None:
        return report_of(watched.folder, verdict.starts, watched.offset)

    def _store(self, batch: Sequence[Judged], lease: str) -> bool:
        now = _now()
        with self.database.write() as session:
            if not leases.holds(session, lease, self.holder, now):
                return False  # we were stopped for long: what we know is old
            leases.take(session, lease, self.holder, now, LEASE)
            verdicts.store_all(session, batch, now)
        for judged in batch:
            self._stored[judged.submission_id] = judged
            self._open.note(judged.submission_id, judged.verdict.starts)
        return True

    def _mend(self, watched: Sequence[Watched], told: Told) -> int:
        """Cancel twins and what was to be cancelled; take in what came back."""
        known = {one.key: one for one in watched}
        strangers = []
        moved = 0
        self._start_hurried(told)
        for key, records in told.live.items():
            alive = [record for record in records if not has_ended(record.state)]
            if not alive:
                continue
            if key not in known:
                strangers.append((key, alive))
            elif known[key].state == Sending.SENT:
                with apart(known[key].job_id, "mending"):
                    moved += self._mend_known(known[key], alive, told)
        return moved + self._mend_strangers(strangers)

    def _start_hurried(self, told: Told) -> None:
        records = [one for records in told.live.values() for one in records]
        for address, pause in self._hurrying.due(records, told.asked_at):
            try:
                self.site.scheduler.start_now(address, pause)
            except HpcplatError as error:  # then it waits as Slurm has it
                logger.warning("starting %s: %s", address, error)

    def _mend_known(self, watched: Watched, alive: list[LiveJob], told: Told) -> int:
        others = {number(record) for record in alive} - {watched.slurm_job_id}
        if others and not self._is_known(watched, told):
            return self._renumber(watched, min(others), told.asked_at)
        for other in others:
            logger.warning("job %s is a twin: cancelled", other)
            self._cancel(str(other), told.asked_at)
        if watched.cancel_asked:
            for record in alive:
                if "COMPLETING" not in record.state.flags:
                    self._cancel(str(number(record)), told.asked_at)
        return 0

    def _is_known(self, watched: Watched, told: Told) -> bool:
        """Tell whether Slurm has, or had, the job under the number that is noted."""
        if told.past is None:
            return True  # nobody can say that it is not
        ours = watched.slurm_job_id
        live = [number(record) for record in told.live.get(watched.key, ())]
        past = [past_number(record) for record in told.past.get(watched.key, ())]
        return ours in live or ours in past

    def _renumber(self, watched: Watched, slurm_job_id: int, now: datetime) -> int:
        """Take over the number that the queue shows for the key: ours was misread."""
        if watched.missed_at is None or now - watched.missed_at < self.patience.confirm:
            return 0
        with self.database.write() as session:
            submissions.renumber(session, watched.submission_id, slurm_job_id, now)
        return 1

    def _mend_strangers(self, strangers: Sequence[tuple[str, list[LiveJob]]]) -> int:
        """Look up keys in the queue that nobody watches."""
        self._foreign.intersection_update(key for key, _ in strangers)
        keys = [key for key, _ in strangers if key not in self._foreign]
        if not keys:
            return 0
        now = _now()
        with self.database.read() as session:
            rows = {row.key: row for row in submissions.with_keys(session, keys)}
        self._foreign.update(key for key in keys if key not in rows)
        alive = dict(strangers)
        moved = 0
        for key, row in rows.items():
            with apart(row.job_id, "mending"):
                moved += self._mend_stranger(row, alive[key], now)
        return moved

    def _mend_stranger(
        self, row: Submission, alive: list[LiveJob], now: datetime
    ) -> int:
        root = min(number(record) for record in alive)
        if row.state in {Sending.CLAIMED, Sending.DOUBTFUL}:
            return 0  # it was sent while Slurm was asked: the next round sees to it
        if row.state == Sending.QUEUED:  # its sbatch got through after all
            with self.database.write() as session:
                arrivals.note(session, {row.id or 0: root}, now)
            return 1
        if row.state == Sending.SENT and row.slurm_job_id == root:
            with self.database.write() as session:
                returned = submissions.revive(session, row.id or 0, now)
            if returned:
                return 1
        logger.warning("job %s is not wanted any more: cancelled", root)
        self._cancel(str(root), now)
        return 0

    def _cancel(self, address: str, now: datetime) -> None:
        if not self._cancels.is_due(address, now):
            return
        try:
            self.site.scheduler.cancel(address)
        except HpcplatError as error:
            logger.warning("cancelling %s: %s", address, error)


def _is_written(watched: Watched, judged: Judged) -> bool:
    """Tell whether a waiting job's row says so already: nothing to write at a start."""
    verdict = judged.verdict
    row = watched.result, watched.result_reason, watched.seen, watched.missed_at
    told = verdict.state, verdict.reason, verdict.word, judged.missed_at
    return row == told and verdict.state is State.PENDING and not verdict.starts


def _now() -> datetime:
    return datetime.now(UTC)
