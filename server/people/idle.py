"""GPU time that a job held and did not use, and what nobody can tell. Pure.

Idle is what surely was: an allocation without ranks that make steps or, where nobody
counts steps, without a running step of Slurm's; and a GPU that every sample found at 0 %.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final

from hpcplat.eventlog import RunEvent
from hpcplat.periods import Period, covered, ranks_up, stepping
from hpcplat.slurm.scheduler import PastJob, PastStep
from hpcplat.slurm.tres import gpu_count

# Slurm's NVML plugin gathers the load of all of a step's GPUs since 24.05, before of
# the last one alone; and of MIG devices none, which it writes as 0 (its gres page).
_SUMS_GPUS: Final = (24, 5)
_MIG: Final = re.compile(r"gres/gpu:\d+[cg]\..*|gres/gpu:.*\d+g\.\d+gb.*")
_ALWAYS_THERE: Final = "extern"  # a step that does nothing but hold the job's processes


@dataclass(frozen=True, slots=True)
class Watch:
    """What is known of a job's GPUs: when they worked, and when nobody could tell.

    ``given``: how many GPUs its ranks have, where some of the job's are of spare nodes.
    ``idle_share``: of all samples of the job's GPUs, those at 0 %; it goes before all.
    """

    used: tuple[Period, ...] = ()
    untold: tuple[Period, ...] = ()
    given: int | None = None
    idle_share: float | None = None


@dataclass(frozen=True, slots=True)
class Accounting:
    """What Slurm's accounting can tell here: its release, and whether it keeps steps."""

    version: tuple[int, int]
    keeps_steps: bool = True


def by_slurm(record: PastJob, site: Accounting) -> Watch:
    """Return what the steps in accounting tell."""
    if not site.keeps_steps:
        return Watch(untold=(Period(-inf, inf),))
    tells = not any(map(_MIG.fullmatch, record.allocated)) and (
        site.version >= _SUMS_GPUS or gpu_count(record.allocated) == 1
    )
    running = [step for step in record.steps if step.step != _ALWAYS_THERE]
    worked = [step for step in running if step.gpu_peak]
    untold = [step for step in running if step.gpu_peak is None or not tells]
    return Watch(_periods(worked), _periods(untold))


def by_run(
    events: Iterable[RunEvent], given: int | None, idle_share: float | None
) -> Watch:
    """Return what a run folder tells; ranks that tell no step may do anything."""
    known = tuple(events)
    steps = stepping(known)
    silent = [
        up
        for up in ranks_up(known)
        if not covered(step.clipped(up.begin, up.end) for step in steps)
    ]
    return Watch(steps, tuple(silent), given, idle_share)


def idle(
    begin: datetime, end: datetime, gpus: int, watch: Watch
) -> tuple[float, float]:
    """Return GPU-hours of ``gpus`` that were idle, and of which nothing is known."""
    start, stop = begin.timestamp(), end.timestamp()
    hours = gpus * (stop - start) / 3600
    if watch.idle_share is not None:
        return hours * watch.idle_share, 0.0
    used = [period.clipped(start, stop) for period in watch.used]
    untold = [period.clipped(start, stop) for period in watch.untold]
    told, either = covered(used), covered([*used, *untold])
    given = gpus if watch.given is None else min(watch.given, gpus)
    return hours - given * either / 3600, given * (either - told) / 3600


def _periods(steps: Iterable[PastStep]) -> tuple[Period, ...]:
    return tuple(
        Period(step.started.timestamp(), step.ended.timestamp() if step.ended else inf)
        for step in steps
        if step.started is not None
    )
