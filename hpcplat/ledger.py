"""The ledger of a job: where its time went, from the events in its run folder; pure.

The effective training time ratio is the time in which steps were made that did not have
to be made again, over all time since the job first started (as in arXiv:2410.21680).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hpcplat.eventlog import EventKind, RunEvent

RESUMED: Final = "resumed"
FINISHED: Final = ("training-finished", "training-stopped", EventKind.ATTEMPT_ENDED)


@dataclass(frozen=True, slots=True)
class Failure:
    """One interruption and its phases, in seconds.

    ``detect``: from the last step to when it was noticed; ``reschedule``: until ranks
    were started; ``start``: until their state was loaded; ``first_step``: until all had
    done a step; ``redo``: what it took to make the lost steps again.
    """

    time: float
    attempt: int
    what: str
    detect: float = 0.0
    reschedule: float = 0.0
    start: float = 0.0
    first_step: float = 0.0
    redo: float = 0.0
    lost_steps: int = 0
    from_memory: bool = False

    @property
    def down(self) -> float:
        """Seconds without progress, the steps that were made again included."""
        phases = (self.detect, self.reschedule, self.start, self.first_step, self.redo)
        return sum(phases)


@dataclass(frozen=True, slots=True)
class Ledger:
    """All of a job's time so far, in seconds.

    ``startup`` is what passed before the very first step, ``copies`` what rank 0's steps
    waited for copies in memory, as far as was told.
    """

    total: float = 0.0
    startup: float = 0.0
    failures: tuple[Failure, ...] = ()
    step: int = 0
    copies: float = 0.0

    @property
    def productive(self) -> float:
        """Time in which steps were made that count."""
        return max(self.total - self.startup - sum(f.down for f in self.failures), 0.0)

    @property
    def ratio(self) -> float:
        """The effective training time ratio; 0 before the first step."""
        return self.productive / self.total if self.total else 0.0

    @property
    def lost_steps(self) -> int:
        """Steps that were made twice."""
        return sum(failure.lost_steps for failure in self.failures)

    def as_record(self) -> dict[str, Any]:
        """Return it as plain values, for an answer in JSON."""
        return {
            "total_seconds": round(self.total, 3),
            "startup_seconds": round(self.startup, 3),
            "productive_seconds": round(self.productive, 3),
            "effective_training_time_ratio": round(self.ratio, 4),
            "memory_copy_seconds": round(self.copies, 3),
            "lost_steps": self.lost_steps,
            "step": self.step,
            "failures": [
                {**asdict(failure), "down": failure.down} for failure in self.failures
            ],
        }


@dataclass(slots=True)
class _Trouble:
    """An interruption whose end has not come yet."""

    what: str
    attempt: int
    last_at: float
    last_step: int
    usual: float
    noticed: float
    started: float = 0.0
    resumed: float = 0.0
    resumed_step: int = 0
    from_memory: bool = False


@dataclass(slots=True)
class _Book:
    """The ledger while events are read, in their order."""

    first: float | None = None
    first_step: float | None = None
    end: float | None = None
    step: int = 0
    copied: float = 0.0  # by ranks that are gone
    copying: float = 0.0  # by those that run
    trouble: _Trouble | None = None
    failures: list[Failure] = field(default_factory=list)


def ledger(events: Iterable[RunEvent], now: float | None = None) -> Ledger:
    """Return the ledger; ``now`` (Unix seconds) ends the time of a job that runs."""
    book = _Book()
    for event in events:
        _enter(book, event)
    end = now if book.end is None else book.end
    if book.first is None or end is None:
        return Ledger()
    startup = (end if book.first_step is None else book.first_step) - book.first
    copies = book.copied + book.copying
    return Ledger(end - book.first, startup, tuple(book.failures), book.step, copies)


def _enter(book: _Book, event: RunEvent) -> None:
    _copying(book, event)
    if event.kind == EventKind.ATTEMPT_STARTED:
        _attempt_started(book, event)
    elif event.kind == EventKind.RECOVERING:
        _recovering(book, event)
    elif event.kind == EventKind.RANKS_STARTED and book.trouble is not None:
        book.trouble.started = event.time
    elif event.kind == RESUMED and book.trouble is not None:
        _resumed(book.trouble, event)
    elif event.kind == EventKind.REQUEUE_ASKED:
        book.step = max(book.step, int(event.details.get("step", 0)))
    elif event.kind in (EventKind.STEPPING, EventKind.RECOVERED):
        _stepping(book, event)
    elif event.kind in FINISHED:
        book.end = event.time
        book.step = max(book.step, int(event.details.get("step", 0)))


def _copying(book: _Book, event: RunEvent) -> None:
    """Add up what copies cost: each start of the ranks counts from nothing."""
    if event.kind == EventKind.RANKS_STARTED:
        book.copied, book.copying = book.copied + book.copying, 0.0
    elif "copy_seconds" in event.details:
        book.copying = float(event.details["copy_seconds"])


def _attempt_started(book: _Book, event: RunEvent) -> None:
    book.end = None
    if book.first is None:
        book.first = event.time
        return
    last_at = float(event.details.get("last_at") or event.time)
    # The beacon, by which the last step is told here, is a second old.
    step = max(int(event.details.get("last_step", 0)), book.step)
    usual = float(event.details.get("usual", 0.0))
    if book.trouble is None and book.first_step is not None:
        what = f"Attempt {event.attempt} began."
        book.trouble = _Trouble(what, event.attempt, last_at, step, usual, last_at)


def _recovering(book: _Book, event: RunEvent) -> None:
    if book.trouble is not None or book.first_step is None:
        return  # it goes on being the same interruption
    noticed = float(event.details.get("began", event.time))
    last_at = float(event.details.get("last_at", noticed))
    book.trouble = _Trouble(
        event.what,
        event.attempt,
        last_at,
        int(event.details.get("last_step", 0)),
        float(event.details.get("usual", 0.0)),
        noticed,
    )


def _resumed(trouble: _Trouble, event: RunEvent) -> None:
    trouble.resumed = event.time
    trouble.resumed_step = int(event.details.get("step", 0))
    trouble.from_memory = bool(event.details.get("from_memory", False))


def _stepping(book: _Book, event: RunEvent) -> None:
    at = float(event.details.get("at", event.time))
    book.step = max(book.step, int(event.details.get("step", 0)))
    trouble, book.trouble = book.trouble, None
    if trouble is None:
        book.first_step = at if book.first_step is None else book.first_step
        return
    started = trouble.started or at
    resumed = trouble.resumed or at
    lost = max(trouble.last_step - trouble.resumed_step, 0)
    book.failures.append(
        Failure(
            time=trouble.noticed,
            attempt=trouble.attempt,
            what=trouble.what,
            detect=max(trouble.noticed - trouble.last_at, 0.0),
            reschedule=max(started - trouble.noticed, 0.0),
            start=max(resumed - started, 0.0),
            first_step=max(at - resumed, 0.0),
            redo=lost * trouble.usual,
            lost_steps=lost,
            from_memory=trouble.from_memory,
        )
    )
