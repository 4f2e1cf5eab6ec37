"""Sending jobs to Slurm exactly once: claim, send, note, and settle what is in doubt.

A submission is QUEUED, then CLAIMED by one worker (a committed row, before sbatch is
run), then SENT, REFUSED, or DOUBTFUL when sbatch gave no clear answer. What is in
doubt is sent again only when Slurm, asked after the sbatch was surely dead, does not
know its key. docs/explanation/exactly-once.md has the argument.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from sqlmodel import Session

from hpcplat.errors import HpcplatError, UnavailableError
from hpcplat.foreign import printable
from hpcplat.slurm.scheduler import Submission as Script
from hpcplat.slurm.scheduler import SubmissionDoubtError
from server.database import Database
from server.hands import Hands
from server.metrics import Metrics
from server.preparation import NotYetError, choose
from server.queries import arrivals, submissions
from server.queries.submissions import Work
from server.site import Site

logger = logging.getLogger("hpcplat.submission")

DATABASE_PAUSE: Final = 1.0  # seconds
BATCH: Final = 4  # submissions that are claimed, and noted, together
NOTE_WITHIN: Final = 0.3  # seconds; who waits for an answer need not wait for a batch
LOOK_AGAIN: Final = 1.0  # seconds; rows that another service queued, or retries

# The database can't be reached just now; all else is a bug, or a row that is bad.
_OUTAGES: Final = (
    UnavailableError,
    OperationalError,
    InterfaceError,
    NoConnectionError,
)

Prepare = Callable[[Work], Script]
Choose = Callable[[Work, int], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """The times that submission keeps to."""

    # From the claim to the start of sbatch: a worker that was stopped for longer must
    # not send any more.
    start_within: timedelta = timedelta(seconds=20)
    # From the claim on, no sbatch of it can be alive: start_within, sbatch's own time
    # limit, and some margin for clocks.
    claim_lasts: timedelta = timedelta(seconds=100)
    # From sbatch's death until Slurm has surely taken in, or dropped, what it sent.
    settles: timedelta = timedelta(seconds=5)
    retry: timedelta = timedelta(seconds=2)  # doubled with each try
    longest_retry: timedelta = timedelta(seconds=60)

    def pause(self, tries: int) -> timedelta:
        """Return how long to wait before the next try."""
        doublings = min(max(tries - 1, 0), 10)
        return min(self.retry * (1 << doublings), self.longest_retry)


@dataclass(frozen=True, slots=True)
class Taken:
    """Slurm has it."""

    slurm_job_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Slurm, or we, said no: another try would end the same."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsent:
    """Surely not sent; another try may do."""

    reason: str


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Sent or not: nobody knows yet."""

    reason: str


Outcome = Taken | Refused | Unsent | Doubtful


def send(
    work: Work,
    submit: Callable[[Script], int],
    prepare: Prepare,
    pace: Pace,
    now: Callable[[], datetime],
) -> Outcome:
    """Write the script and run sbatch, once."""
    script = _prepared(work, prepare)
    if not isinstance(script, Script):
        return script
    if now() - work.claimed_at > pace.start_within:
        return Unsent("The service was held up.")
    try:
        return Taken(submit(script))
    except SubmissionDoubtError as error:
        return Doubtful(error.what)
    except UnavailableError as error:
        return Unsent(str(error))
    except HpcplatError as error:
        return Refused(str(error))
    except Exception:  # a bug after sbatch may have run: only Slurm can tell
        logger.exception("submitting %s failed", work.key)
        return Doubtful("hpcplat failed while it submitted the job.")


def _prepared(work: Work, prepare: Prepare) -> Script | Outcome:
    try:
        return prepare(work)
    except (NotYetError, UnavailableError) as error:
        return Unsent(str(error))
    except HpcplatError as error:
        return Refused(str(error))
    except Exception:  # a bug must not leave the row claimed, or be tried for ever
        logger.exception("preparing %s failed", work.key)
        return Refused("hpcplat could not write the batch script: see its log.")


class Waiters:
    """Requests that wait for a job's submission, woken when its outcome is noted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], object]]] = {}

    def add(self, job_id: str, wake: Callable[[], object]) -> None:
        """Have ``wake`` called, from whatever thread, when there is news of the job.

        It may raise RuntimeError: the event loop of who waits is closed.
        """
        with self._lock:
            self._waiting.setdefault(job_id, []).append(wake)

    def remove(self, job_id: str, wake: Callable[[], object]) -> None:
        """Forget a waiter."""
        with self._lock:
            left = [one for one in self._waiting.get(job_id, ()) if one is not wake]
            self._waiting[job_id] = left
            if not left:
                del self._waiting[job_id]

    def tell(self, job_ids: Iterable[str]) -> None:
        """Wake those who wait for these jobs."""
        with self._lock:
            found = [w for job_id in job_ids for w in self._waiting.get(job_id, ())]
        for wake in found:
            with contextlib.suppress(RuntimeError):  # nobody is left there to be told
                wake()


@dataclass
class InHand:
    """What one worker has claimed, what it has to note, and whether more may wait."""

    works: list[Work] = field(default_factory=list)
    done: list[tuple[Work, Outcome]] = field(default_factory=list)
    is_due: bool = True


class Submitter:
    """Worker threads that send what is queued for one cluster."""

    def __init__(
        self,
        database: Database,
        site: Site,
        prepare: Prepare,
        pace: Pace,
        metrics: Metrics,
        choose: Choose = choose,
    ) -> None:
        self.choose = choose
        self.database = database
        self.site = site
        self.prepare = prepare
        self.pace = pace
        self.metrics = metrics
        self.waiters = Waiters()
        self.counts: dict[str, int] = {}
        self.hands = Hands()
        self._said = ""

    def start(self, workers: int = 2) -> None:
        """Start the threads."""
        self.hands.open(workers * BATCH)
        for number in range(workers):
            name = f"submit-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def stop(self, patience: float = 10.0) -> None:
        """Let each worker end what it has in hand, and wait some seconds for it.

        An sbatch that takes longer is left to itself: its row is claimed, and whoever
        comes next settles it as after a crash.
        """
        self.hands.close(patience)

    def wake(self) -> None:
        """Say that something was queued."""
        self.hands.wake()

    def step(
        self, done: Sequence[tuple[Work, Outcome]] = (), most: int = 1
    ) -> list[Work]:
        """Note outcomes and claim the next work, in one transaction.

        A claim must outlive a power cut: else what was sent might be sent again. An
        outcome need not: the key in Slurm tells it once more.
        """
        return self._noted_and_claimed(self.site.name, done, most)

    def _noted_and_claimed(
        self, cluster: str, done: Sequence[tuple[Work, Outcome]], most: int
    ) -> list[Work]:
        now = datetime.now(UTC)
        works: list[Work] = []
        with self.database.write(durable=most > 0) as session:
            twins, chosen = self._note_all(session, done, now)
            if most:
                works = submissions.claim(session, cluster, now, most)
        try:
            self._follow_up(done, twins, chosen)
        except Exception:  # what was claimed by now must be sent even so
            logger.exception("what follows an outcome failed")
        return works

    def _follow_up(
        self,
        done: Sequence[tuple[Work, Outcome]],
        twins: Sequence[int],
        chosen: Sequence[tuple[Work, int]],
    ) -> None:
        """Do what is to be done once outcomes are written down."""
        self.waiters.tell(work.job_id for work, _ in done)
        for twin in twins:
            self._remove_twin(twin)
        for work, slurm_job_id in chosen:
            self._choose(work, slurm_job_id)

    def _note_all(
        self, session: Session, done: Sequence[tuple[Work, Outcome]], now: datetime
    ) -> tuple[list[int], list[tuple[Work, int]]]:
        """Write outcomes; return the twins among them, and which job does the work."""
        taken = [(w, o.slurm_job_id) for w, o in done if isinstance(o, Taken)]
        others = [(w, o) for w, o in done if not isinstance(o, Taken)]
        numbers = {work.submission_id: number for work, number in taken}
        twins = arrivals.note(session, numbers, now) if taken else set()
        if others:
            submissions.hold(session, [work for work, _ in others])
        for work, outcome in others:
            note(session, work, outcome, now, self.pace)
        ours = [(w, n) for w, n in taken if w.submission_id not in twins]
        return (
            [numbers[submission_id] for submission_id in twins],
            [(work, number) for work, number in ours if work.tries > 1],
        )

    def _choose(self, work: Work, slurm_job_id: int) -> None:
        try:
            self.choose(work, slurm_job_id)
        except HpcplatError as error:  # a twin would still be seen, and cancelled
            logger.warning("%s: %s", work.key, error)

    def send(self, work: Work) -> Outcome:
        """Send one claimed submission and count how it went."""
        outcome = send(
            work, self._submit, self.prepare, self.pace, lambda: datetime.now(UTC)
        )
        kind = type(outcome).__name__.lower()
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.metrics.submissions.labels(kind).inc()
        return outcome

    def drain(self) -> None:
        """Send all that is due, in this thread."""
        if not self._is_due():
            return
        works = self.step(most=BATCH)
        while works:
            works = self.step([(work, self.send(work)) for work in works], BATCH)

    def _submit(self, script: Script) -> int:
        with self.metrics.query("submit"):
            return self.site.scheduler.submit(script).job_id

    def _work(self) -> None:
        hand = InHand()
        is_wanted = True
        while is_wanted:
            try:
                is_wanted = self._turn(hand)
            except Exception:  # the worker must live: others' jobs wait for it
                logger.exception("a turn of a worker failed; going on")
                time.sleep(DATABASE_PAUSE)
                is_wanted = not self.hands.are_done

    def _turn(self, hand: InHand) -> bool:
        """Note, claim, send: what waits long is noted meanwhile. False at the end."""
        if (hand.done or hand.is_due) and not self._stepped(hand):
            time.sleep(DATABASE_PAUSE)
            return not self.hands.are_done
        if not hand.works:
            hand.works, hand.is_due = self._rested()
        if not hand.works and not hand.is_due:
            return False
        self._send_some(hand)
        return True

    def _stepped(self, hand: InHand) -> bool:
        """Note and claim; False if that has to be tried again after a while."""
        wanted = BATCH if hand.is_due and not hand.works else 0
        try:
            # Slurm may be asked, for long: no room is kept, nor the database held by then.
            cluster = self.site.name
            with self.hands.exchanging(len(hand.done), wanted) as promise:
                if hand.done or promise.room:
                    promise.works = self._noted_and_claimed(
                        cluster, hand.done, promise.room
                    )
        except UnavailableError as error:
            self._say_once(f"nothing can be submitted; trying again: {error}")
            return False
        except _OUTAGES:  # the outcomes stay in hand
            logger.exception("the database does not take the outcome; trying again")
            return False
        except Exception:  # one bad row must not keep the others from being noted
            logger.exception("noting and claiming failed; noting one by one")
            self._note_singly(hand)
            return False
        self._said = ""
        is_all = bool(hand.works) or len(promise.works) == promise.room
        hand.is_due = hand.is_due and is_all
        hand.works, hand.done = [*hand.works, *promise.works], []
        return True

    def _note_singly(self, hand: InHand) -> None:
        """Note one outcome at a time, and give up one that can't be noted.

        Its row stays claimed: it is settled by its key, as after a crash.
        """
        while hand.done:
            work, _ = hand.done[0]
            with self.hands.exchanging(1, 0):
                try:
                    self.step(hand.done[:1], most=0)
                except _OUTAGES:
                    raise
                except Exception:  # a bug that one row meets is not for all the others
                    logger.exception("the outcome of %s can't be noted", work.key)
            del hand.done[0]

    def _send_some(self, hand: InHand) -> None:
        """Send what is in hand, for so long as an outcome may wait to be noted."""
        began = time.monotonic()
        while hand.works and time.monotonic() - began < NOTE_WITHIN:
            work = hand.works.pop(0)
            # Until it is known: whatever happens here, nobody sends it again.
            hand.done.append((work, Doubtful("The service failed as it sent the job.")))
            hand.done[-1] = (work, self.send(work))
            hand.works += [] if hand.works else self.hands.take()

    def _say_once(self, words: str) -> None:
        """Log why no work is done, unless it was the last thing that was logged."""
        is_new, self._said = words != self._said, words
        if is_new:
            logger.warning("%s", words)

    def _rested(self) -> tuple[list[Work], bool]:
        """Wait for work in hand, or queued; neither when the service stops."""
        while True:
            handed, is_queued = self.hands.rest(LOOK_AGAIN)
            if handed:
                return handed, is_queued
            if self.hands.are_done:
                return [], False
            if self.hands.are_open and (is_queued or self._is_due()):
                return [], True

    def _is_due(self) -> bool:
        try:
            with self.database.read() as session:
                return submissions.is_due(session, self.site.name, datetime.now(UTC))
        except (SQLAlchemyError, UnavailableError) as error:
            logger.warning("looking for work: %s", error)
            return False

    def _remove_twin(self, slurm_job_id: int) -> None:
        logger.warning("job %s is a twin: cancelled", slurm_job_id)
        try:
            self.site.scheduler.cancel(str(slurm_job_id))
        except HpcplatError as error:  # the reconcile loop will see it, and try again
            logger.warning("cancelling %s: %s", slurm_job_id, error)


def note(
    session: Session,
    work: Work,
    outcome: Refused | Unsent | Doubtful,
    now: datetime,
    pace: Pace,
) -> None:
    """Write what became of a submission that Slurm did not clearly take.

    What another service has taken over in the meantime is left alone.
    """
    if not submissions.still_claimed(session, work):
        return
    row, why = work.submission_id, printable(outcome.reason)  # whatever a program said
    match outcome:
        case Refused():
            submissions.refused(session, row, why, now)
        case Unsent():
            later = now + pace.pause(work.tries)
            submissions.queued_again(session, row, why, now, later)
        case Doubtful():
            submissions.doubted(session, row, why, now)
