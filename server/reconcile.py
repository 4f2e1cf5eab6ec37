"""The loop that keeps rows true: one question to Slurm, then what follows from it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from hpcplat.errors import HpcplatError, UnavailableError
from hpcplat.slurm.scheduler import LiveJob, PastJob
from hpcplat.slurm.states import has_ended
from server.database import Database
from server.ids import find_key
from server.judgement import Patience, Report, Sight, Verdict, judge, with_report
from server.metrics import Metrics
from server.queries import leases, submissions, verdicts
from server.queries.submissions import Watched
from server.queries.verdicts import Judged
from server.reports import report_of
from server.site import Site
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
    slowest: float = 5.0
    idle: float = 10.0

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


@dataclass(frozen=True, slots=True)
class Told:
    """What Slurm said in this round, by key; ``past`` None where it was silent."""

    asked_at: datetime
    live: Mapping[str, list[LiveJob]]
    past: Mapping[str, list[PastJob]] | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of a submission in doubt."""

    step: Literal["wait", "found", "again", "unknown"]
    slurm_job_id: int = 0
    missed_at: datetime | None = None


def settle(
    watched: Watched,
    told: Told,
    pace: Pace,
    confirm: timedelta,
    has_accounting: bool,
    remembered: timedelta,
) -> Settled:
    """Decide on a submission of which nobody knows whether Slurm has it.

    ``remembered`` is for how long squeue surely shows a job (MinJobAge). It is sent
    again only if Slurm, asked after the sbatch was dead and its message settled, did
    not know the key, twice, in the queue and in accounting.
    """
    found = [_root(record) for record in told.live.get(watched.key, ())]
    if not found and told.past:
        found = [_past_root(record) for record in told.past.get(watched.key, ())]
    if found:
        return Settled("found", min(found))
    claimed = watched.claimed_at or told.asked_at
    dead = watched.doubted_at or claimed + pace.claim_lasts
    if told.asked_at < dead + pace.settles:
        return Settled("wait", missed_at=watched.missed_at)
    if told.past is None and told.asked_at - claimed > remembered:
        return Settled("wait" if has_accounting else "unknown")
    if watched.missed_at is None or told.asked_at - watched.missed_at < confirm:
        return Settled("wait", missed_at=watched.missed_at or told.asked_at)
    return Settled("again")


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
        self._foreign: set[str] = set()
        self._cancelled: dict[str, datetime] = {}

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
        moved += self._judge(watched, told, lease)
        moved += self._mend(watched, told)
        self.last_look = told.asked_at
        return Look(leads=True, busy=True, moved=moved > 0)

    def give_up(self) -> None:
        """Let another service lead at once."""
        if self._lease:
            with self.database.write() as session:
                leases.give_up(session, self._lease, self.holder, _now())

    def _ask(self, watched: Sequence[Watched]) -> Told:
        """Ask squeue, and sacct too where a job left the queue: one question each."""
        asked_at = _now()
        with self.metrics.query("jobs"):
            live = _by_key(self.site.scheduler.jobs(finished=True), watched)
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
        return _past_by_key(records, asked)

    def _needs_history(
        self, watched: Watched, live: Mapping[str, list[LiveJob]], now: datetime
    ) -> bool:
        records = live.get(watched.key, ())
        if watched.state != Sending.SENT:
            return not records and now >= _dead(watched, self.pace, now)
        records = [r for r in records if _root(r) == watched.slurm_job_id]
        if all(has_ended(record.state) for record in records):
            return True
        stored = self._stored.get(watched.submission_id)
        if stored is None:
            return False
        running = {record.started for record in records}
        return any(
            start.ended_at is None and start.started_at not in running
            for start in stored.verdict.starts
        )

    def _settle_doubts(self, watched: Sequence[Watched], told: Told) -> int:
        doubts = [w for w in watched if w.state != Sending.SENT]
        if not doubts:
            return 0
        facts = self.site.facts()
        remembered = timedelta(seconds=facts.min_job_age) / 2
        moved = 0
        for doubt in doubts:
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
                submissions.sent(
                    session, doubt.submission_id, settled.slurm_job_id, now
                )
            elif settled.step == "unknown":
                submissions.given_up(session, doubt.submission_id, now)
            elif doubt.cancel_asked:
                submissions.taken_back(session, doubt.submission_id, now)
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
            if one.state == Sending.SENT:
                judged = self._judged(one, told, facts.has_accounting)
                if judged != self._stored.get(one.submission_id):
                    fresh.append(judged)
        for start in range(0, len(fresh), BATCH):
            if not self._store(fresh[start : start + BATCH], lease):
                return 0
        gone = self._stored.keys() - {one.submission_id for one in watched}
        for submission_id in gone:
            del self._stored[submission_id]
        return len(fresh)

    def _judged(self, watched: Watched, told: Told, has_accounting: bool) -> Judged:
        live = tuple(
            record
            for record in told.live.get(watched.key, ())
            if _root(record) == watched.slurm_job_id
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
            for judged in batch:
                verdicts.store(session, judged, now)
        self._stored.update({judged.submission_id: judged for judged in batch})
        return True

    def _mend(self, watched: Sequence[Watched], told: Told) -> int:
        """Cancel twins and what was to be cancelled; take in what came back."""
        known = {one.key: one for one in watched}
        strangers = []
        moved = 0
        for key, records in told.live.items():
            alive = [record for record in records if not has_ended(record.state)]
            if not alive:
                continue
            if key not in known:
                strangers.append((key, alive))
            elif known[key].state == Sending.SENT:
                moved += self._mend_known(known[key], alive, told)
        return moved + self._mend_strangers(strangers)

    def _mend_known(self, watched: Watched, alive: list[LiveJob], told: Told) -> int:
        others = {_root(record) for record in alive} - {watched.slurm_job_id}
        if others and not self._is_known(watched, told):
            return self._renumber(watched, min(others), told.asked_at)
        for other in others:
            logger.warning("job %s is a twin: cancelled", other)
            self._cancel(str(other), told.asked_at)
        if watched.cancel_asked:
            for record in alive:
                if "COMPLETING" not in record.state.flags:
                    self._cancel(str(_root(record)), told.asked_at)
        return 0

    def _is_known(self, watched: Watched, told: Told) -> bool:
        """Tell whether Slurm has, or had, the job under the number that is noted."""
        if told.past is None:
            return True  # nobody can say that it is not
        ours = watched.slurm_job_id
        live = [_root(record) for record in told.live.get(watched.key, ())]
        past = [_past_root(record) for record in told.past.get(watched.key, ())]
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
        keys = [key for key, _ in strangers if key not in self._foreign]
        if not keys:
            return 0
        now = _now()
        with self.database.read() as session:
            rows = {row.key: row for row in submissions.with_keys(session, keys)}
        self._foreign.update(key for key in keys if key not in rows)
        alive = dict(strangers)
        return sum(
            self._mend_stranger(row, alive[key], now) for key, row in rows.items()
        )

    def _mend_stranger(
        self, row: Submission, alive: list[LiveJob], now: datetime
    ) -> int:
        root = min(_root(record) for record in alive)
        if row.state in {Sending.CLAIMED, Sending.DOUBTFUL}:
            return 0  # it was sent while Slurm was asked: the next round sees to it
        if row.state == Sending.QUEUED:  # its sbatch got through after all
            with self.database.write() as session:
                submissions.sent(session, row.id or 0, root, now)
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
        last = self._cancelled.get(address)
        if last is not None and now - last < CANCEL_AGAIN:
            return
        self._cancelled[address] = now
        try:
            self.site.scheduler.cancel(address)
        except HpcplatError as error:
            logger.warning("cancelling %s: %s", address, error)


def _now() -> datetime:
    return datetime.now(UTC)


def _root(record: LiveJob) -> int:
    """Return the number that sbatch answered: of the array, of the het job as a whole."""
    if record.array_job_id:
        return record.array_job_id
    root, plus, _ = record.address.partition("+")
    return int(root) if plus and root.isdecimal() else record.job_id


def _dead(watched: Watched, pace: Pace, now: datetime) -> datetime:
    return watched.doubted_at or (watched.claimed_at or now) + pace.claim_lasts


def _by_key(
    records: Iterable[LiveJob], watched: Sequence[Watched]
) -> Mapping[str, list[LiveJob]]:
    """Sort the queue's records by key; by the job id where somebody took the key away.

    A job that came by way of sbatch may carry its owner's own comment instead. Numbers
    repeat: a job under ours that is another person's, or has another name, is not ours.
    """
    ours = {w.slurm_job_id: w for w in watched if w.slurm_job_id is not None}
    found: dict[str, list[LiveJob]] = {}
    for record in records:
        key = find_key(record.comment, record.name)
        if key is None:
            key = _key_of(record, ours.get(_root(record)))
        if key is not None:
            found.setdefault(key, []).append(record)
    return found


def _past_by_key(
    records: Iterable[PastJob], asked: Sequence[Watched]
) -> Mapping[str, list[PastJob]]:
    """Sort accounting's records by key: of the comment, of the name, by the job id.

    Accounting keeps the comment only where the site says so, and only at the end.
    """
    ours = {w.slurm_job_id: w for w in asked if w.slurm_job_id is not None}
    found: dict[str, list[PastJob]] = {}
    for record in records:
        key = find_key(record.comment, record.name)
        if key is None:
            key = _key_of(record, ours.get(_past_root(record)))
        if key is not None:
            found.setdefault(key, []).append(record)
    return found


def _key_of(record: LiveJob | PastJob, watched: Watched | None) -> str | None:
    if watched is None or record.user != watched.user:
        return None
    # Accounting may have lost letters of the name that are not ASCII.
    same_name = record.name.isascii() and record.name == watched.name
    odd_name = not watched.name.isascii()
    is_ours = watched.kind == "sbatch" or same_name or odd_name
    return watched.key if is_ours else None


def _past_root(record: PastJob) -> int:
    root = re.split(r"[_+]", record.address, maxsplit=1)[0]
    return int(root) if root.isdecimal() else record.job_id
