"""The rules of recovery, without any process."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.launchplan import LaunchPlan
from hpcplat.ledger import ledger
from hpcplat.pulse import Phase, Pulse, PulseBoard
from launchers.messages import Beacon, Ended, Join
from launchers.recovery.buddies import (
    buddy,
    going_on,
    holder,
    newest_common,
    reach,
    with_copies,
)
from launchers.recovery.copies import Copies, Copy, new_memory
from launchers.recovery.generation import Generation, all_stopped_early
from launchers.recovery.hang import suspect
from launchers.recovery.progress import attempts_without_progress
from launchers.recovery.watch import FLOOR, Watch
from launchers.stacks import main_stack, waits_for_others
from launchers.world import Member, refilled, starts

PLAN = LaunchPlan("k", "n", nodes=3, ranks_per_node=1, argv=("true",), spare_nodes=1)


def member(index: int, switch: str = "", host: str = "") -> Member:
    name = host or f"h{index}"
    node = f"n{index}"
    join = Join("w", node, index, name, "via", 1, keeper=100 + index, switch=switch)
    return Member(join, f"10.0.0.{index}")


FOUR = tuple(member(index) for index in range(4))


def ended(rank: int, code: int, time: float = 0.0, tail: str = "") -> Ended:
    return Ended(0, rank, code, time, tail=(tail,))


# --- places --------------------------------------------------------------------


def test_survivors_stay_and_the_spare_fills_the_gap() -> None:
    places = refilled(FOUR[:3], [FOUR[0], FOUR[2], FOUR[3]])
    assert places == (FOUR[0], FOUR[3], FOUR[2])
    assert refilled(FOUR[:3], [FOUR[0], FOUR[2]]) is None


def test_copies_go_to_another_switch_where_there_is_one() -> None:
    places = [member(0, "s1"), member(1, "s1"), member(2, "s2")]
    assert buddy(places, 0) is places[2]
    assert buddy(places, 2) is places[0]
    assert buddy(FOUR[:3], 2) is FOUR[0]  # nothing is known: the ring
    assert buddy(FOUR[:1], 0, FOUR[3:]) is FOUR[3]
    assert buddy(FOUR[:1], 0) is None


def test_a_node_reaches_the_coordinators_own_as_it_reached_the_coordinator() -> None:
    assert reach(FOUR[1], FOUR[0], "h0") == "10.0.0.1"
    assert reach(FOUR[0], FOUR[1], "h0") == "via"
    assert reach(member(5, host="h1"), FOUR[1], "h0") == "127.0.0.1"


def test_the_step_to_go_on_from_is_whole_over_all_ranks() -> None:
    held = {"n0": [(0, 7), (0, 8), (2, 7)], "n1": [(1, 7), (0, 7), (2, 8)]}
    assert newest_common(held, range(3)) == 7
    assert newest_common(held, range(4)) == -1
    assert newest_common(held, [0, 2]) == 8  # a smaller world takes up these two
    assert holder(held, 0, 7, "n1") == "n1"
    assert holder(held, 1, 7, "n0") == "n1"
    assert holder(held, 1, 8, "n0") is None


def test_orders_say_where_the_copies_are() -> None:
    places = (FOUR[0], FOUR[3], FOUR[2])
    orders = starts(PLAN, places, "h0", 1, store_port=5)
    held = {"n0": [(0, 7)], "n2": [(2, 7), (1, 7)]}
    orders = going_on(orders, 7, ())
    found = with_copies(orders, [FOUR[0], FOUR[2], FOUR[3]], "h0", held)
    assert found["n0"].sources == ()
    assert found["n3"].sources == ((1, "10.0.0.2", 102),)
    assert found["n3"].buddy == ("10.0.0.2", 102)
    assert {order.resume for order in found.values()} == {7}


def test_a_smaller_world_takes_up_the_copies_of_a_larger_one() -> None:
    places = (FOUR[0], FOUR[2])
    orders = starts(replace(PLAN, nodes=2), places, "h0", 1)
    held = {"n0": [(0, 7)], "n2": [(1, 7), (2, 7)]}
    found = with_copies(going_on(orders, 7, (0, 2)), places, "h0", held)
    assert found["n2"].origins == (2,)
    assert found["n2"].sources == ()
    assert found["n0"].origins == (0,)


# --- copies --------------------------------------------------------------------


def copy(rank: int, step: int, generation: int = 0) -> Copy:
    return Copy(rank, generation, step, 8, {}, new_memory(8))


def test_while_a_copy_is_taken_the_newest_complete_one_stays() -> None:
    copies = Copies()
    first, second = copy(0, 1), copy(0, 2)
    copies.add(first)
    copies.add(second)
    assert copies.make_way(0, first.memory) == [first.memory]
    assert copies.listing() == [(0, 2)]


def test_after_a_restart_only_its_own_step_stays() -> None:
    copies = Copies()
    for step in (4, 5):
        copies.add(copy(0, step))
    copies.add(copy(1, 5, generation=1))  # of the new ranks: they were quick
    copies.keep_only(4, generation=1)
    assert sorted(copies.listing()) == [(0, 4), (1, 5)]


def test_a_copy_that_comes_too_late_is_not_taken_for_a_new_one() -> None:
    copies = Copies()
    copies.add(copy(0, 4))
    copies.keep_only(4, generation=1)
    copies.add(copy(0, 5))  # of a rank that was given up: another batch, maybe
    copies.add(copy(1, 4))  # the step that all go on from
    copies.add(copy(0, 5, generation=1))
    assert sorted(copies.listing()) == [(0, 4), (0, 5), (1, 4)]
    assert getattr(copies.find(0, 5), "generation", None) == 1


@given(st.data())
def test_two_slots_always_have_a_step_in_common(data: st.DataObject) -> None:
    """Whatever dies whenever: the rule of `busy` keeps one step whole over all ranks."""
    ranks = 3
    slots: list[list[int]] = [[] for _ in range(ranks)]  # complete copies
    under_way: list[int | None] = [None] * ranks
    for step in range(1, 8):
        for rank in range(ranks):  # any copy may be complete by now, or not
            pending = under_way[rank]
            if pending is not None and data.draw(st.booleans()):
                slots[rank].append(pending)
                under_way[rank] = None
        if any(pending is not None for pending in under_way):
            continue  # a rank is busy: nobody takes a copy of this step
        for rank in range(ranks):
            if data.draw(st.booleans(), label="dies in the middle"):
                common = set.intersection(*map(set, slots)) if step > 1 else {0}
                assert common
            slots[rank] = slots[rank][-1:]  # the older one is overwritten
            under_way[rank] = step


# --- judgement -----------------------------------------------------------------


def generation(*ends: Ended) -> Generation:
    orders = starts(PLAN, FOUR[:3], "h0", 0)
    return Generation(0, FOUR[:3], orders, {end.rank: end for end in ends})


def test_an_echo_of_anothers_death_is_not_the_cause() -> None:
    now = generation(
        ended(0, 3, 1.0, "RuntimeError: Connection closed by peer [10.0.0.2]:1"),
        ended(1, 139, 1.1),
    )
    cause = now.cause()
    assert cause is not None
    assert cause.rank == 1
    assert generation(ended(0, 3, 1.0, "Connection reset by peer")).cause() is None


def test_who_saved_and_stopped_did_not_fail() -> None:
    assert generation(ended(0, 75)).failures() == []
    assert all_stopped_early([ended(0, 75), ended(1, 0)])
    assert not all_stopped_early([ended(0, 0), ended(1, 0)])
    assert not all_stopped_early([ended(0, 75), ended(1, 1)])


def test_ranks_of_living_nodes_are_waited_for() -> None:
    now = generation(ended(0, 137))
    assert now.left({"n0", "n2"}) == {2}


def test_progress_is_a_new_checkpoint() -> None:
    def saved(step: int) -> RunEvent:
        return RunEvent("checkpoint-saved", "", 1, details={"step": step})

    asked = RunEvent(EventKind.REQUEUE_ASKED, "", 1)
    assert attempts_without_progress([saved(10), asked, saved(20), asked]) == 0
    assert attempts_without_progress([saved(10), asked, saved(10), asked, asked]) == 2


# --- hangs ---------------------------------------------------------------------


def watch(*steps: int, states: str = "SSS", age: float = 0.0) -> Watch:
    found = Watch(3)
    for at in range(5):  # a step a second
        done = tuple(step - 4 + at for step in steps)
        found.take(Beacon(0, (0, 1, 2), done, (1,) * 3, (age,) * 3, tuple(states)), at)
    return found


def test_silence_is_a_hang_only_after_a_while() -> None:
    found = watch(9, 9, 9)
    assert found.usual() == pytest.approx(1)
    assert not found.stalled(4 + FLOOR - 1)
    assert found.stalled(4 + FLOOR + 1)


def test_a_stopped_process_gets_no_grace() -> None:
    found = watch(9, 9, 9, states="STS")
    assert not found.stalled(4 + 3 + 0.4)
    assert found.stalled(4 + 3 + 0.6)  # named within a second then
    assert suspect(found, {}) == 1


def test_whoever_evaluates_may_take_long() -> None:
    found = watch(9, 9, 9)
    beacon = Beacon(0, (0,), (9,), (Phase.OTHER,), (0.0,), ("R",))
    found.take(beacon, 4)
    assert not found.stalled(1000)


@pytest.mark.parametrize("seed", range(5))
def test_ten_minutes_of_pauses_raise_no_alarm(seed: int) -> None:
    """Garbage collections and slow reads of some seconds, saves of up to a minute."""
    rng, found = random.Random(seed), Watch(2)
    now, step, beat, until, phase = 0.0, 1, 0.0, 0.2, Phase.TRAINING
    while now < 600:
        now += 0.5  # a beacon
        while until <= now:
            step, beat, phase = step + 1, until, Phase.TRAINING
            length = 0.2
            if rng.random() < 0.02:
                length = rng.uniform(1, FLOOR - 1)
            elif rng.random() < 0.005:
                length, phase = rng.uniform(10, 60), Phase.OTHER
            until += length
        ages, states = (now - beat,) * 2, (rng.choice("RSD"),) * 2
        found.take(Beacon(0, (0, 1), (step,) * 2, (phase,) * 2, ages, states), now)
        assert not found.stalled(now), now
    assert step > 500


def test_the_one_that_is_behind_or_in_no_collective_is_the_suspect() -> None:
    waits = 'Thread 1 (most recent call first):\n  File "torch/distributed/x.py"'
    works = 'Thread 1 (most recent call first):\n  File "mine.py"'
    assert suspect(watch(9, 9, 8), {}) == 2
    assert suspect(watch(9, 9, 9), {0: waits, 1: works, 2: waits}) == 1
    assert suspect(watch(9, 9, 9), {0: works, 1: works, 2: waits}) is None
    assert suspect(watch(9, 9, 9, states="SSD"), {}) == 2


def test_the_main_thread_stands_last_in_a_dump() -> None:
    dump = (
        'Thread 0x1 (most recent call first):\n  File "a.py", line 1 in run\n\n'
        'Current thread 0x2 (most recent call first):\n  File "b.py", line 2 in go\n'
    )
    assert "b.py" in main_stack(dump)
    assert main_stack("nothing") == ""
    assert waits_for_others('  File "/x/torch/distributed/c10d.py", line 1 in wait')


def test_a_beat_is_seen_by_the_agent() -> None:
    board = PulseBoard(2)
    Pulse(Path(board.path), 1).beat(5, Phase.OTHER)
    assert (board.read(1).step, board.read(1).phase) == (5, Phase.OTHER)
    assert board.read(0).step == 0
    board.clear()
    assert board.read(1).step == 0
    Pulse(None, 0).beat(1)  # without an agent it goes nowhere


# --- ledger --------------------------------------------------------------------


def event(kind: str, time: float, attempt: int = 1, **details: object) -> RunEvent:
    return RunEvent(kind, kind, attempt, time, details)


def test_each_phase_of_a_failure_is_in_the_ledger() -> None:
    found = ledger(
        [
            event("attempt-started", 0),
            event("ranks-started", 5),
            event("stepping", 10, step=1, at=10),
            event("node-lost", 51),
            event("recovering", 52, began=51, last_at=50, last_step=40, usual=1.0),
            event("ranks-started", 53),
            event("resumed", 55, step=37),
            event("recovered", 56, step=38, at=56),
            event("training-finished", 110, step=90),
        ]
    )
    (failure,) = found.failures
    phases = (failure.detect, failure.reschedule, failure.start, failure.first_step)
    assert phases == (1, 2, 2, 1)
    assert (failure.lost_steps, failure.redo) == (3, 3)
    assert (found.startup, found.total, found.step) == (10, 110, 90)
    assert found.productive == 110 - 10 - 9
    assert found.ratio == pytest.approx(91 / 110)


def test_a_new_attempt_is_a_failure_from_the_last_sign_of_life() -> None:
    found = ledger(
        [
            event("attempt-started", 0),
            event("stepping", 10, step=1, at=10),
            event("attempt-started", 130, 2, last_at=100, last_step=50, usual=1.0),
            event("ranks-started", 135, 2),
            event("resumed", 140, 2, step=40),
            event("stepping", 141, 2, step=41, at=141),
        ],
        now=200,
    )
    (failure,) = found.failures
    assert (failure.reschedule, failure.lost_steps) == (35, 10)
    assert found.total == 200


def test_what_copies_cost_is_added_up_over_starts() -> None:
    found = ledger(
        [
            event("attempt-started", 0),
            event("ranks-started", 5),
            event("stepping", 10, step=1, at=10),
            event("checkpoint-saved", 20, step=10, copy_seconds=0.5),
            event("checkpoint-saved", 30, step=20, copy_seconds=1.0),
            event("ranks-started", 35),
            event("training-finished", 60, step=50, copy_seconds=0.25),
        ]
    )
    assert found.as_record()["memory_copy_seconds"] == 1.25


def test_a_job_that_never_made_a_step_was_never_productive() -> None:
    found = ledger([event("attempt-started", 0)], now=60)
    assert (found.productive, found.ratio) == (0, 0)
    assert ledger([]).ratio == 0
