"""What is done about losses and failures, and what failures in a row are taken for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcplat.eventlog import RunEvent
from hpcplat.jobs import spec_of
from hpcplat.launchplan import LaunchPlan, Shrink
from hpcplat.shrinking import shrinks
from hpcplat.training import training_of
from launchers.messages import Ended, Join
from launchers.recovery.blame import (
    LONGEST_PAUSE,
    Crash,
    Crashes,
    bad_node,
    pattern,
    pause,
    samples_of,
    suspected,
)
from launchers.recovery.decision import (
    GiveUp,
    QueueAgain,
    StartAgain,
    crash_of,
    decide,
    shrunk,
)
from launchers.recovery.generation import Generation
from launchers.world import Member, starts

PLAN = LaunchPlan("k", "n", nodes=3, ranks_per_node=1, argv=("true",), batch=8)


def member(index: int) -> Member:
    return Member(Join("w", f"n{index}", index, f"h{index}", "via", 1), "10.0.0.1")


NODES = tuple(member(index) for index in range(4))


def generation(*ends: Ended, lost: tuple[str, ...] = ()) -> Generation:
    orders = starts(PLAN, NODES[:3], "h0", 0)
    by_rank = {end.rank: end for end in ends}
    return Generation(0, NODES[:3], orders, by_rank, list(lost))


def ended(rank: int, code: int = 1, step: int = 0) -> Ended:
    return Ended(0, rank, code, 1.0, step=step)


# --- decisions -----------------------------------------------------------------


def test_a_spare_takes_the_place_of_a_lost_node() -> None:
    found = decide(PLAN, generation(lost=("n1",)), [NODES[0], NODES[2], NODES[3]])
    assert isinstance(found, StartAgain)
    assert found.places == (NODES[0], NODES[3], NODES[2])
    assert (found.plan, found.pause, found.left_out) == (PLAN, 0, "")


def test_without_a_spare_the_job_is_queued_again() -> None:
    found = decide(PLAN, generation(lost=("n1",)), [NODES[0], NODES[2]])
    assert isinstance(found, QueueAgain)


def test_a_smaller_world_goes_on_where_the_policy_allows() -> None:
    plan = replace(PLAN, shrinks=(Shrink(2, (0, 1)), Shrink(1, (0,))))
    found = decide(plan, generation(lost=("n0",)), [NODES[1], NODES[2]])
    assert isinstance(found, StartAgain)
    assert found.places == (NODES[1], NODES[2])
    assert (found.plan.nodes, found.plan.world) == (2, 2)
    assert found.origins == (0, 1)
    assert found.plan.shrinks == (Shrink(1, (0,)),)
    assert "2 of 3 nodes" in found.what


def test_a_smaller_world_counts_its_own_ranks() -> None:
    plan = replace(PLAN, shrinks=(Shrink(2, (0, 2)), Shrink(1, (2,))))
    assert shrunk(plan, plan.shrinks[0]).shrinks == (Shrink(1, (1,)),)
    from_disk = replace(PLAN, shrinks=(Shrink(2), Shrink(1)))
    assert shrunk(from_disk, from_disk.shrinks[0]).shrinks == (Shrink(1),)


def test_a_node_on_which_ranks_fail_twice_is_left_out_if_another_is_there() -> None:
    now, row = generation(ended(1)), [Crash(1, "n1", 4), Crash(1, "n1", 4)]
    found = decide(PLAN, now, NODES, row)
    assert isinstance(found, StartAgain)
    assert found.left_out == "n1"
    assert found.places == (NODES[0], NODES[3], NODES[2])
    assert found.pause > 0
    alone = decide(PLAN, now, NODES[:3], row)
    assert isinstance(alone, StartAgain)
    assert (alone.left_out, alone.places) == ("", NODES[:3])


def test_after_enough_failures_the_job_ends_and_says_what_they_share() -> None:
    row = [Crash(1, "n1", 4), Crash(1, "n1", 4), Crash(1, "n3", 4), Crash(1, "n3", 4)]
    found = decide(PLAN, generation(ended(1)), NODES, row, " (samples 32 to 39)")
    assert isinstance(found, GiveUp)
    assert "rank 1 on n1 and n3" in found.verdict.reason
    assert "the code or the data (samples 32 to 39)" in found.verdict.reason


def test_a_rank_that_says_what_to_mend_is_not_started_again() -> None:
    plan = replace(PLAN, final_codes=(1,))
    found = decide(plan, generation(ended(1)), NODES, [Crash(1, "n1", 0)])
    assert isinstance(found, GiveUp)


def test_who_failed_is_known_with_its_own_last_step() -> None:
    now = generation(ended(2, step=17))
    assert crash_of(now, now.failures()[0], 14) == Crash(2, "n2", 17)
    assert crash_of(generation(), None, 14) == Crash(None, "", 14)


# --- failures in a row ---------------------------------------------------------


def test_only_steps_beyond_the_failure_are_progress() -> None:
    crashes = Crashes()
    crashes.add(Crash(0, "n0", 16))
    crashes.passed(16)  # from the checkpoint of step 10: made again
    assert len(crashes.row) == 1
    crashes.passed(17)
    assert crashes.row == []


def test_pauses_grow_to_a_limit() -> None:
    row = [Crash(0, "n0", 0)]
    assert [pause(row * n) for n in (1, 2, 3, 4, 99)] == [0, 1, 2, 4, LONGEST_PAUSE]


@pytest.mark.parametrize(
    ("row", "node", "words"),
    [
        ([(0, "a", 3)], "", ""),
        ([(0, "a", 3), (0, "b", 3)], "", "each time rank 0 on a and b"),
        ([(0, "a", 3), (5, "b", 3)], "", "each time in step 4: the code or the data"),
        ([(0, "a", 3), (1, "a", 9)], "a", "all on a, of several ranks: the node"),
        ([(0, "a", 3), (5, "b", 9)], "", "2 failures in a row."),
        ([(0, "b", 3), (0, "a", 3), (0, "a", 3)], "a", "each time rank 0"),
        ([(0, "a", 0), (1, "b", 0)], "", "2 failures in a row."),
    ],
)
def test_what_failures_share(
    row: list[tuple[int, str, int]], node: str, words: str
) -> None:
    crashes = [Crash(*one) for one in row]
    assert bad_node(crashes) == node
    assert words in pattern(crashes, "")


def test_nodes_stay_suspected_over_attempts() -> None:
    past = [
        RunEvent("node-suspected", "", 1, details={"node": "n1"}),
        RunEvent("node-lost", "", 1, details={"node": "n2"}),
    ]
    assert suspected(past) == {"n1"}


def test_samples_are_counted_from_where_the_run_resumed() -> None:
    back = RunEvent("resumed", "", 1, details={"step": 10, "samples": 96})
    assert samples_of(12, 8, []) == " (samples 96 to 103 of the order)"
    assert samples_of(12, 8, [back]) == " (samples 112 to 119 of the order)"
    assert samples_of(12, 0, [back]) == ""


# --- smaller worlds of a training ----------------------------------------------


def spec(nodes: int, **fields: object) -> object:
    values = {
        "name": "t",
        "kind": "train",
        "preset": "gpt-tiny",
        "data": "d@1",
        "resources": {"nodes": nodes, "tasks_per_node": 2, "spare_nodes": 1},
        "settings": {"batch": {"global_size": 12}, **fields},
        "parallelism": {"tensor": 2},
    }
    return training_of(spec_of(values))


def test_smaller_worlds_keep_batch_and_layout() -> None:
    found = shrinks(spec(4))  # type: ignore[arg-type]
    assert [one.nodes for one in found] == [3, 2, 1]  # 12 samples: any of them
    assert found[1].origins == (0, 1, 2, 3)
    five = shrinks(spec(6))  # type: ignore[arg-type]
    assert [one.nodes for one in five] == [4, 3, 2, 1]  # 5 replicas do not divide 12


def test_states_that_are_split_over_replicas_come_from_disk() -> None:
    found = shrinks(spec(2, optimizer={"distributed": True}))  # type: ignore[arg-type]
    assert found == (Shrink(1),)
