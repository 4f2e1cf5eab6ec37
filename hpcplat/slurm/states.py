"""The one table of Slurm's job states: base state, flags, what is final."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
