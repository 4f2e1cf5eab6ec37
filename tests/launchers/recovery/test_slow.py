"""A rank that holds the others up is named; one that only waits is not."""

from __future__ import annotations

from pathlib import Path

from hpcplat import eventlog
from hpcplat.launchplan import LaunchPlan
from hpcplat.runfolder import RunFolder
from launchers.arguments import Arguments
from launchers.attempt import Attempt
from launchers.messages import Beacon, Join
from launchers.recovery.generation import Generation
from launchers.recovery.slow import Slow, slow_rank
from launchers.recovery.slowwatch import WINDOW, SlowWatch
from launchers.recovery.watch import Watch
from launchers.world import Member, starts

PLAN = LaunchPlan("k", "n", nodes=2, ranks_per_node=2, argv=("true",), stages=2)


def test_a_rank_is_held_against_its_own_stage() -> None:
    own = {0: 0.2, 1: 0.2, 2: 0.9, 3: 0.8}  # the last stage has more to do
    assert slow_rank(own, 2, 1.0) is None
    assert slow_rank(own | {1: 0.7}, 2, 1.0) == Slow(1, 0.7, 0.2)
    assert slow_rank({0: 0.1, 1: 0.1, 2: 0.1, 3: 0.9}, 0, 1.0) == Slow(3, 0.9, 0.1)


def test_what_does_not_matter_is_not_reported() -> None:
    assert slow_rank({0: 0.01, 1: 0.05}, 1, 1.0) is None  # 4 % of a step
    assert slow_rank({0: 0.5}, 1, 1.0) is None
    assert slow_rank({}, 1, 1.0) is None


def attempt(root: Path) -> Attempt:
    run = RunFolder(root)
    place = Arguments(run, 1, None, ())
    return Attempt(PLAN, place, "h", "n0", "7")


def test_it_is_said_once_and_again_only_after_it_was_well(tmp_path: Path) -> None:
    told = attempt(tmp_path)
    nodes = tuple(
        Member(Join("w", f"n{i}", i, f"h{i}", "via", 1), "10.0.0.1") for i in (0, 1)
    )
    now = Generation(0, nodes, starts(PLAN, nodes, "h0", 0))
    slow, watch, owns = SlowWatch(told), Watch(4), [0.0] * 4
    step = 0

    def windows(count: int, third: float) -> int:
        nonlocal step
        for _ in range(count * WINDOW):
            step += 1
            for rank, seconds in enumerate((0.1, 0.1, 0.1, third)):
                owns[rank] += seconds
            ranks, ages, states = (0, 1, 2, 3), (0.0,) * 4, ("S",) * 4
            beacon = Beacon(0, ranks, (step,) * 4, (1,) * 4, ages, states, tuple(owns))
            watch.take(beacon, float(step))
            slow.look(now, watch, PLAN.stages)
        return len(eventlog.read_all(told.place.run.events)[0])

    assert windows(3, 0.1) == 0
    assert windows(1, 0.9) == 0  # one bad window is a hiccup
    assert windows(4, 0.9) == 1
    assert windows(2, 0.1) == 1
    assert windows(3, 0.9) == 2
    event = eventlog.read_all(told.place.run.events)[0][0]
    assert (event.details["rank"], event.details["node"]) == (3, "n1")
