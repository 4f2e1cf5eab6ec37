"""Idle GPU-hours: what accounting, a run folder and samples of the GPUs can tell."""

from __future__ import annotations

import pytest

from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.slurm.scheduler import PastJob, PastStep
from hpcplat.slurm.states import BaseState, JobState
from hpcplat.tracking.gpu_tally import GpuTally, idle_share, tally_of
from server.people.idle import Accounting, Watch, by_run, by_slurm, idle
from tests.server.fakes import past_job
from tests.server.people.test_usage import HOUR, NOON

NEW = Accounting((24, 11))
OLD = Accounting((22, 5))


def step(name: str, begin: float, end: float | None, peak: int | None) -> PastStep:
    """Return a step from and to these hours after noon."""
    return PastStep(
        name,
        JobState(BaseState.COMPLETED),
        0,
        0,
        NOON + begin * HOUR,
        None if end is None else NOON + end * HOUR,
        peak,
    )


def job(*steps: PastStep, **allocated: int) -> PastJob:
    tres = {f"gres/{name}": count for name, count in allocated.items()} or {
        "gres/gpu": 2
    }
    return past_job(started=NOON, ended=NOON + 4 * HOUR, steps=steps, allocated=tres)


def idle_and_unknown(watch: Watch) -> tuple[float, float]:
    """Return them of two GPUs held from noon for four hours."""
    return idle(NOON, NOON + 4 * HOUR, 2, watch)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((), (8, 0)),  # an allocation in which nothing was started
        ((step("extern", 0, 4, None),), (8, 0)),
        ((step("0", 1, 2, None),), (6, 2)),  # nobody saw what it did
        ((step("0", 1, 2, None), step("1", 1.5, 3, None)), (4, 4)),
        ((step("0", 1, 2, 90),), (6, 0)),
        ((step("0", 1, 2, 0), step("1", 2, None, 5)), (4, 0)),
        # The batch script waits for a step that works: the step's time is used.
        ((step("batch", 0, 4, 0), step("0", 1, 3, 70)), (4, 0)),
        ((step("batch", 0, 4, None), step("0", 1, 3, 70)), (0, 4)),
    ],
)
def test_accounting_tells_by_its_steps(
    steps: tuple[PastStep, ...], found: tuple[float, float]
) -> None:
    assert idle_and_unknown(by_slurm(job(*steps), NEW)) == found


def test_a_load_of_zero_is_only_believed_where_it_is_of_all_gpus() -> None:
    zero = step("0", 0, 4, 0)
    assert idle_and_unknown(by_slurm(job(zero), NEW)) == (8, 0)
    assert idle_and_unknown(by_slurm(job(zero), OLD)) == (0, 8)
    assert by_slurm(job(zero, gpu=1), OLD) == Watch()  # it was of the only one
    slices = {"gpu": 2, "gpu:a100_1g.5gb": 2}
    assert idle_and_unknown(by_slurm(job(zero, **slices), NEW)) == (0, 8)


def test_without_steps_in_accounting_nothing_is_known() -> None:
    watch = by_slurm(job(), Accounting((24, 11), keeps_steps=False))
    assert idle_and_unknown(watch) == (0, 8)


def events(*marks: tuple[str, float]) -> tuple[RunEvent, ...]:
    start = NOON.timestamp()
    return tuple(RunEvent(kind, "", 1, start + 3600 * at) for kind, at in marks)


TRAINED = events(
    (EventKind.ATTEMPT_STARTED, 0),
    (EventKind.RANKS_STARTED, 0.5),
    (EventKind.STEPPING, 1),
    (EventKind.ATTEMPT_ENDED, 3),
)


def test_ranks_use_their_gpus_while_they_make_steps_and_spares_never() -> None:
    assert idle_and_unknown(by_run(TRAINED, None, None)) == (4, 0)
    assert idle_and_unknown(by_run(TRAINED, 1, None)) == (6, 0)
    assert idle_and_unknown(by_run(TRAINED, 9, None)) == (4, 0)  # a node was lost


def test_ranks_that_tell_no_steps_may_do_anything() -> None:
    silent = tuple(each for each in TRAINED if each.kind != EventKind.STEPPING)
    assert idle_and_unknown(by_run(silent, None, None)) == (3, 5)


def test_samples_of_the_gpus_go_before_all() -> None:
    assert idle_and_unknown(by_run(TRAINED, None, 0.25)) == (2, 0)


def test_samples_are_counted_by_node_and_survive_as_a_file() -> None:
    tally = GpuTally()
    for load in (0.0, 0.0, 80.0):
        tally = tally.and_of(
            {
                "system/gpu0_percent": load,
                "system/gpu1_percent": 5.0,
                "system/cpu_percent": 0,
            }
        )
    assert tally == GpuTally(6, 2)
    assert tally.and_of({"system/gpu0_power_w": 0}) == tally  # MIG: no load is told
    assert idle_share([tally, GpuTally(2, 2)]) == 0.5
    assert idle_share([GpuTally()]) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"samples":1}', b'{"samples":1,"idle":2}']
)
def test_a_file_that_is_no_tally_counts_for_nothing(content: bytes) -> None:
    assert tally_of(content) == GpuTally()
    assert tally_of(b'{"samples":4,"idle":2}') == GpuTally(4, 2)
