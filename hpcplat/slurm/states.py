"""The one table of Slurm's job states: base state, flags, what is final."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from hpcplat.slurm.answers import UnreadableError


class BaseState(StrEnum):
    """Slurm's base job states (squeue(1), JOB STATE CODES)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"


@dataclass(frozen=True, slots=True)
class JobState:
    """A base state and the flags that squeue and sacct add to it."""

    base: BaseState
    flags: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return "+".join([self.base, *sorted(self.flags)])


@dataclass(frozen=True, slots=True)
class StateWord:
    """A row of the table: what one of Slurm's words says about a job.

    ``flag`` is set where the word is a flag. squeue and sacct print a flag INSTEAD
    of the base state, so ``base`` is then what the job is at least known to be; it
    is never an end state that the hidden one might not be.
    """

    word: str
    compact: str
    base: BaseState
    flag: bool
    meaning: str


def _base(state: BaseState, compact: str, meaning: str) -> StateWord:
    return StateWord(state.value, compact, state, flag=False, meaning=meaning)


def _flag(word: str, compact: str, base: BaseState, meaning: str) -> StateWord:
    return StateWord(word, compact, base, flag=True, meaning=meaning)


_B = BaseState
TABLE: Final[tuple[StateWord, ...]] = (
    _base(_B.PENDING, "PD", "waits for resources, a limit, a time or another job"),
    _base(_B.RUNNING, "R", "has an allocation"),
    _base(_B.SUSPENDED, "S", "has an allocation, stopped, its CPUs given to others"),
    _base(_B.COMPLETED, "CD", "ended with exit code 0"),
    _base(_B.CANCELLED, "CA", "cancelled by its user or an administrator"),
    _base(_B.FAILED, "F", "ended with another exit code"),
    _base(_B.TIMEOUT, "TO", "reached its time limit"),
    _base(_B.NODE_FAIL, "NF", "lost a node"),
    _base(_B.PREEMPTED, "PR", "made room for a job that goes before it"),
    _base(_B.BOOT_FAIL, "BF", "its nodes failed to boot"),
    _base(_B.DEADLINE, "DL", "reached its deadline"),
    _base(_B.OUT_OF_MEMORY, "OOM", "used more memory than it had"),
    _flag("COMPLETING", "CG", _B.RUNNING, "ended or requeued; still cleaning up nodes"),
    _flag("CONFIGURING", "CF", _B.RUNNING, "has nodes that are not ready yet"),
    _flag("REQUEUED", "RQ", _B.PENDING, "this attempt ended, the job goes back"),
    _flag("REQUEUE_HOLD", "RH", _B.PENDING, "requeued and held"),
    _flag("REQUEUE_FED", "RF", _B.PENDING, "requeued by the federation"),
    _flag("SPECIAL_EXIT", "SE", _B.PENDING, "requeued and held after a special exit"),
    _flag("RESV_DEL_HOLD", "RD", _B.PENDING, "held: its reservation was deleted"),
    _flag("EXPEDITING", "", _B.PENDING, "requeued, to start before all others"),
    _flag("RESIZING", "RS", _B.RUNNING, "about to change its size, or a part before"),
    _flag("SIGNALING", "SI", _B.RUNNING, "is being sent a signal"),
    _flag("STAGE_OUT", "SO", _B.RUNNING, "ended, moves its files out"),
    _flag("STOPPED", "ST", _B.RUNNING, "has an allocation, stopped, keeps its CPUs"),
    _flag("LAUNCH_FAILED", "", _B.RUNNING, "did not come up on its nodes"),
    _flag("RECONFIG_FAIL", "", _B.RUNNING, "its nodes failed to reconfigure"),
    _flag("POWER_UP_NODE", "", _B.RUNNING, "its nodes are being switched on"),
    _flag("UPDATE_DB", "", _B.RUNNING, "its end is being written to accounting"),
    _flag("REVOKED", "RV", _B.CANCELLED, "runs on another cluster of the federation"),
)

_WORDS: Final[Mapping[str, StateWord]] = MappingProxyType(
    {row.word: row for row in TABLE}
    | {row.compact: row for row in TABLE if row.compact}
)

_LIVE: Final = frozenset({_B.PENDING, _B.RUNNING, _B.SUSPENDED})
# What Slurm itself starts again where the job and the site allow a requeue.
_REQUEUES: Final = frozenset({_B.NODE_FAIL, _B.PREEMPTED, _B.BOOT_FAIL})
# Flags of a job that still holds its nodes, though its base state may be an end.
_UNSETTLED: Final = frozenset(
    row.word for row in TABLE if row.flag and row.base is _B.RUNNING
)


def parse_state(answer: str | Sequence[str]) -> JobState:
    """Return the state from a command's text or from the list in its JSON.

    Reads the long words and the compact ones, sacct's ``CANCELLED by 1001`` and
    ``PENDING,REQUEUED`` or ``PENDING+REQUEUED`` (the form of ``str(JobState)``). A word that is in no table
    raises UnreadableError, unless a base state stands beside it: then it is a flag
    newer than this table, and kept.
    """
    words = re.split("[+,]", answer) if isinstance(answer, str) else list(answer)
    words = [word.split(" by ")[0].strip().upper() for word in words if word]
    rows = [_WORDS[word] for word in words if word in _WORDS]
    if not rows:
        raise UnreadableError(f"Slurm gave the unknown job state {answer!r}.")
    bases = [row.base for row in rows if not row.flag]
    flags = {row.word for row in rows if row.flag}
    flags |= {word for word in words if word not in _WORDS}
    return JobState(bases[0] if bases else rows[0].base, frozenset(flags))


def past_state(answer: str, *, ended: bool) -> JobState:
    """Return the state of an attempt in accounting, which says whether it ended.

    sacct shows an attempt that a requeue ended as ``REQUEUED`` and nothing more: it
    was cut off, and its job goes back into the queue.
    """
    state = parse_state(answer)
    if ended and "REQUEUED" in state.flags and state.base is _B.PENDING:
        return JobState(_B.CANCELLED, state.flags)
    return state


def has_ended(state: JobState) -> bool:
    """Whether this attempt is over and its nodes are given back."""
    return state.base not in _LIVE and not state.flags & _UNSETTLED


def may_come_back(state: JobState) -> bool:
    """Whether an ended attempt may be followed by another under the same job id.

    True for what Slurm requeues by itself (NODE_FAIL, PREEMPTED, BOOT_FAIL) and for
    everything on its way back into the queue. Such a state is final only if the
    job was submitted with ``--no-requeue``, or stays away.
    """
    return state.base in _REQUEUES or any(
        word in _WORDS and _WORDS[word].base is _B.PENDING for word in state.flags
    )


def is_final(state: JobState) -> bool:
    """Whether the job is over for good: ended, and nothing will bring it back."""
    return has_ended(state) and not may_come_back(state)
