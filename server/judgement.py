"""What Slurm's answers mean for a job: pure rules, no clock, no database.

The rules, in the order of their weight:

- What squeue shows alive is alive, whatever accounting says of an earlier attempt.
- An attempt that accounting calls ended has ended; a job whose newest attempt ended
  with NODE_FAIL or PREEMPTED may come back, and is not over for a while.
- Absence proves nothing by itself: squeue forgets (MinJobAge) and accounting lags.
- Exit code 0 is not success where a step ran out of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from hpcplat.slurm.scheduler import LiveJob, PastJob
from hpcplat.slurm.states import BaseState, JobState, has_ended, may_come_back
from server.states import FINAL, State

OURS: Final[Mapping[BaseState, State]] = {
    BaseState.PENDING: State.PENDING,
    BaseState.RUNNING: State.RUNNING,
    BaseState.SUSPENDED: State.SUSPENDED,
    BaseState.COMPLETED: State.COMPLETED,
    BaseState.CANCELLED: State.CANCELLED,
    BaseState.FAILED: State.FAILED,
    BaseState.TIMEOUT: State.FAILED,
    BaseState.NODE_FAIL: State.FAILED,
    BaseState.PREEMPTED: State.FAILED,
    BaseState.BOOT_FAIL: State.FAILED,
    BaseState.DEADLINE: State.FAILED,
    BaseState.OUT_OF_MEMORY: State.FAILED,
}
WORDS: Final[Mapping[BaseState, str]] = {
    BaseState.TIMEOUT: "It reached its time limit.",
    BaseState.NODE_FAIL: "A node died.",
    BaseState.PREEMPTED: "It was preempted by a job of higher priority.",
    BaseState.BOOT_FAIL: "A node did not boot.",
    BaseState.DEADLINE: "It reached its deadline.",
    BaseState.OUT_OF_MEMORY: "It ran out of memory.",
}

REQUEUED: Final = "REQUEUED"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait before an absence, or a lag, is believed."""

    comeback: timedelta = timedelta(seconds=15)  # NODE_FAIL, PREEMPTED: requeued?
    accounting: timedelta = timedelta(seconds=20)  # for the steps of an ended job
    lost: timedelta = timedelta(seconds=90)  # neither queued nor ended: Slurm lost it
    confirm: timedelta = timedelta(seconds=3)  # absent once may be a hiccup


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a job or task, as Slurm tells it."""

    task: int
    submitted_at: datetime
    started_at: datetime
    ended_at: datetime | None
    state: str
    reason: str
    exit_code: int | None
    exit_signal: int | None
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is now known of a submission; ``state`` None: nothing new can be said."""

    state: State | None
    reason: str = ""
    word: str = ""  # Slurm's own, of the newest record
    starts: tuple[Start, ...] = ()
    exit_code: int | None = None
    is_lost: bool = False  # Slurm forgot it without an end
    is_guess: bool = False  # nobody told how it ended

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in FINAL


@dataclass(frozen=True, slots=True)
class Sight:
    """All that Slurm says of one submission at one moment.

    ``past`` is None where accounting was not asked or did not answer;
    ``has_accounting`` says whether the site has any. ``absent_for`` is how long squeue
    has not shown the job (None: it shows it). ``last_word`` is what squeue said last.
    ``offset`` is what a part of an array adds to its tasks' indices.
    """

    live: tuple[LiveJob, ...]
    past: tuple[PastJob, ...] | None
    has_accounting: bool
    absent_for: timedelta | None
    last_word: str
    now: datetime
    offset: int = 0


def judge(sight: Sight, patience: Patience) -> Verdict:
    """Return what the records of one submission mean together."""
    sight = replace(sight, past=_without_drafts(sight))
    starts = _starts(sight)
    alive = [record for record in sight.live if not has_ended(record.state)]
    if alive:
        return _of_living(alive, starts)
    if sight.live:
        return _of_ended(sight, starts, patience)
    return _of_absent(sight, starts, patience)


def combined(parts: Sequence[Verdict]) -> Verdict:
    """Return the state of a job from those of its parts (chunks of an array)."""
    if len(parts) == 1:
        return parts[0]
    known = [part for part in parts if part.state is not None]
    for state in (State.RUNNING, State.SUSPENDED, State.PENDING, State.SUBMITTING):
        first = next((part for part in known if part.state is state), None)
        if first is not None:
            return Verdict(state, first.reason, first.word)
    if len(known) < len(parts):
        return Verdict(None)
    for state in (State.FAILED, State.CANCELLED, State.COMPLETED):
        same = [part for part in known if part.state is state]
        if same:
            reasons = " ".join(dict.fromkeys(part.reason for part in same))
            return Verdict(state, reasons, same[0].word, exit_code=same[0].exit_code)
    return Verdict(None)


@dataclass(frozen=True, slots=True)
class Report:
    """How an attempt ended, as the agent wrote into the run folder."""

    code: int
    reason: str


def with_report(verdict: Verdict, report: Report | None) -> Verdict:
    """Return the verdict with what the agent knew better: why the job failed.

    Where Slurm keeps no accounting, the agent's word on how it ended is the only one.
    """
    if report is None or verdict.state is not State.FAILED:
        return verdict
    if verdict.is_guess and report.code == 0:
        return replace(verdict, state=State.COMPLETED, reason="", exit_code=0)
    if verdict.word not in {str(BaseState.FAILED), ""} and not verdict.is_guess:
        return verdict  # TIMEOUT, NODE_FAIL …: Slurm knows better
    reason = report.reason or verdict.reason
    failed = newest_failed(verdict.starts)
    starts = tuple(
        replace(start, reason=reason) if start is failed else start
        for start in verdict.starts
    )
    return replace(
        verdict, reason=reason, exit_code=report.code, is_lost=False, starts=starts
    )


def newest_failed(starts: Sequence[Start]) -> Start | None:
    """Return the start that an agent's report is about; the newest if none failed."""
    failed = [start for start in starts if start.exit_code or start.exit_signal]
    return max(failed or starts, key=lambda start: start.started_at, default=None)


def task_of(record: LiveJob | PastJob) -> int:
    """Return the index in the array, -1 for a plain job.

    Accounting's records carry it in the address only (``123_4``).
    """
    if isinstance(record, LiveJob):
        return -1 if record.array_task_id is None else record.array_task_id
    _, _, task = record.address.partition("_")
    return int(task) if task.isdecimal() else -1


def _of_living(alive: list[LiveJob], starts: tuple[Start, ...]) -> Verdict:
    """State the liveliest of the records: one running task makes a running array."""
    for base in (BaseState.RUNNING, BaseState.SUSPENDED):
        first = next((record for record in alive if record.state.base is base), None)
        if first is not None:
            return Verdict(OURS[base], "", str(base), starts)
    ending = next((r for r in alive if r.state.base is not BaseState.PENDING), None)
    if ending is not None:  # COMPLETING: its end is known when its nodes are clean
        return Verdict(State.RUNNING, "It is ending.", str(ending.state.base), starts)
    return Verdict(State.PENDING, alive[0].reason, str(BaseState.PENDING), starts)


def _of_ended(sight: Sight, starts: tuple[Start, ...], patience: Patience) -> Verdict:
    """Judge a job that squeue shows as ended, by accounting's fuller record."""
    newest = max(sight.live, key=lambda record: record.submitted)
    ended_for = sight.now - max(
        (record.ends or record.submitted for record in sight.live),
        default=sight.now,
    )
    word = str(newest.state.base)
    if may_come_back(newest.state) and ended_for < patience.comeback:
        return Verdict(None, word=word, starts=starts)
    if sight.has_accounting:
        told = _newest(sight.past or ())
        if _tell_all(told, sight.live):
            return _sentence(told, starts, sight.offset)
        if ended_for < patience.accounting:
            return Verdict(None, word=word, starts=starts)
    return _from_words([record.state.base for record in sight.live], starts)


def _of_absent(sight: Sight, starts: tuple[Start, ...], patience: Patience) -> Verdict:
    """Judge a job that squeue does not show: absence proves nothing by itself."""
    absent = sight.absent_for or timedelta(0)
    nothing_new = Verdict(None, word=sight.last_word, starts=starts)
    if not sight.has_accounting:
        return _without_accounting(sight, starts, patience, absent)
    if sight.past is None or absent < patience.confirm:
        return nothing_new
    told = _newest(sight.past)
    if told and all(has_ended(record.state) for record in told):
        returns = any(may_come_back(record.state) for record in told)
        if returns and absent < patience.comeback:
            return nothing_new
        return _sentence(told, starts, sight.offset)
    if absent < patience.lost:
        return nothing_new
    return Verdict(
        State.FAILED,
        "Slurm lost the job: it is not in the queue, and accounting has no end of it.",
        sight.last_word,
        starts,
        is_lost=True,
    )


def _without_accounting(
    sight: Sight, starts: tuple[Start, ...], patience: Patience, absent: timedelta
) -> Verdict:
    if absent < patience.confirm:
        return Verdict(None, word=sight.last_word, starts=starts)
    try:
        word = BaseState(sight.last_word)
    except ValueError:
        word = BaseState.PENDING
    if OURS[word] in FINAL:
        return _from_words([word], starts)
    return Verdict(
        State.FAILED,
        "It left the queue, and this site keeps no accounting that tells how it ended.",
        sight.last_word,
        starts,
        is_lost=word is BaseState.PENDING,
        is_guess=True,
    )


def _sentence(
    told: Sequence[PastJob], starts: tuple[Start, ...], offset: int
) -> Verdict:
    """Judge attempts that have ended, one for each task."""
    judged = [(record, *_end_of(record)) for record in told]
    for state in (State.FAILED, State.CANCELLED):
        same = [entry for entry in judged if entry[1] is state]
        if same:
            record, _, reason = same[0]
            if len(judged) > 1:
                tasks = [task_of(entry[0]) + offset for entry in same]
                reason = f"{_tasks(tasks, len(judged))} {reason}"
            word = str(record.state.base)
            return Verdict(state, reason, word, starts, record.exit_code)
    word = str(BaseState.COMPLETED)
    return Verdict(State.COMPLETED, "", word, starts, 0)


def _end_of(record: PastJob) -> tuple[State, str]:
    """Return the state and the reason of an attempt that has ended."""
    base = record.state.base
    if REQUEUED in record.state.flags:
        return OURS[base], "It was requeued."
    if base is BaseState.COMPLETED:
        killed = [s.step for s in record.steps if _ran_out_of_memory(s.state)]
        if killed:
            steps = ", ".join(killed)
            return State.FAILED, f"Step {steps} ran out of memory (exit code 0)."
        return State.COMPLETED, ""
    if base is BaseState.FAILED:
        return State.FAILED, _exit_words(record.exit_code, record.exit_signal)
    if base is BaseState.CANCELLED:
        return State.CANCELLED, "It was cancelled."
    return OURS[base], WORDS[base]


def _ran_out_of_memory(state: JobState) -> bool:
    return state.base is BaseState.OUT_OF_MEMORY


def _exit_words(code: int, signal: int) -> str:
    if signal:
        return f"It was ended by signal {signal}."
    return f"It ended with exit code {code}."


def _from_words(words: list[BaseState], starts: tuple[Start, ...]) -> Verdict:
    """Judge by squeue's last words alone: no exit code, no steps."""
    for state in (State.FAILED, State.CANCELLED):
        word = next((word for word in words if OURS[word] is state), None)
        if word is not None:
            reason = WORDS.get(word, f"Slurm says {word}.")
            return Verdict(state, reason, str(word), starts)
    return Verdict(State.COMPLETED, "", str(words[0]), starts)


def _tasks(tasks: Sequence[int], total: int) -> str:
    shown = ", ".join(str(task) for task in tasks[:8])
    more = ", …" if len(tasks) > 8 else ""
    return f"{len(tasks)} of {total} tasks ({shown}{more}):"


def _without_drafts(sight: Sight) -> tuple[PastJob, ...] | None:
    """Drop what accounting says of an array as a whole before it knows of its tasks."""
    if sight.past is None:
        return None
    records: list[LiveJob | PastJob] = [*sight.live, *sight.past]
    is_array = any(task_of(record) >= 0 for record in records)
    return tuple(r for r in sight.past if "_" in r.address or not is_array)


def _tell_all(told: Sequence[PastJob], live: Sequence[LiveJob]) -> bool:
    """Tell whether accounting has the end of each task that squeue shows as ended.

    It lags: it may have some tasks only, or of a task an earlier start only.
    """
    if not told or not all(has_ended(record.state) for record in told):
        return False
    starts = {task_of(record): record.started for record in told}
    for record in live:
        if task_of(record) not in starts:
            return False
        start = starts[task_of(record)]
        if start is not None and record.started is not None and start < record.started:
            return False
    return True


def _newest(past: Iterable[PastJob]) -> list[PastJob]:
    """Return the newest attempt of each task."""
    newest: dict[str, PastJob] = {}
    for record in past:
        known = newest.get(record.address)
        if known is None or _order(known) <= _order(record):
            newest[record.address] = record
    return list(newest.values())


def _order(record: PastJob) -> tuple[datetime, datetime]:
    return record.submitted, record.started or record.submitted


def _starts(sight: Sight) -> tuple[Start, ...]:
    """Return all starts, accounting's word over squeue's where both tell of one.

    A record without nodes is of a job that never started, whatever its times say.
    """
    found: dict[tuple[int, datetime], Start] = {}
    for past in _whole(sight.past or ()):
        if past.started is not None and past.nodes:
            found[task_of(past), past.started] = _past_start(past, past.started)
    for live in sight.live:
        if live.started is None or not live.nodes:
            continue
        if "COMPLETING" in live.state.flags:
            continue  # of a requeued job, squeue shows the time of the question
        key = task_of(live), live.started
        if key not in found or found[key].ended_at is None:
            found[key] = _live_start(live, live.started)
        elif len(live.nodes) > len(found[key].nodes):
            # For a moment accounting tells of the batch host alone.
            found[key] = replace(found[key], nodes=live.nodes)
    return tuple(sorted(found.values(), key=lambda s: (s.task, s.started_at)))


def _whole(past: Iterable[PastJob]) -> list[PastJob]:
    """Join what accounting cut where a job lost a node and went on (RESIZING)."""
    joined: list[PastJob] = []
    cut: dict[str, PastJob] = {}
    for record in sorted(past, key=_order):
        first = cut.pop(record.address, None)
        if first is not None:
            nodes = tuple(dict.fromkeys((*first.nodes, *record.nodes)))
            record = replace(record, started=first.started, nodes=nodes)
        if "RESIZING" in record.state.flags:
            cut[record.address] = record
        else:
            joined.append(record)
    return [*joined, *cut.values()]


def _past_start(past: PastJob, started: datetime) -> Start:
    ended = has_ended(past.state)
    return Start(
        task=task_of(past),
        submitted_at=past.submitted,
        started_at=started,
        ended_at=past.ended if ended else None,
        state=_word_of(past.state),
        reason=_end_of(past)[1] if ended else "",
        exit_code=past.exit_code if ended else None,
        exit_signal=past.exit_signal if ended else None,
        nodes=past.nodes,
    )


def _word_of(state: JobState) -> str:
    """Return Slurm's word; a requeue ends an attempt with CANCELLED and this flag."""
    return REQUEUED if REQUEUED in state.flags else str(state.base)


def _live_start(live: LiveJob, started: datetime) -> Start:
    ended = has_ended(live.state)
    return Start(
        task=task_of(live),
        submitted_at=live.submitted,
        started_at=started,
        ended_at=live.ends if ended else None,
        state=str(live.state.base),
        reason=WORDS.get(live.state.base, "") if ended else "",
        exit_code=None,
        exit_signal=None,
        nodes=live.nodes,
    )
