"""What Slurm's answers mean: rule by rule, without a Slurm."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hpcplat.slurm.scheduler import LiveJob, PastJob, PastStep
from hpcplat.slurm.states import BaseState, JobState
from server.judgement import Patience, Sight, Verdict, combined, judge
from server.states import State

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PATIENCE = Patience()
LONG_AGO = timedelta(hours=1)


def live(base: BaseState, **changes: object) -> LiveJob:
    record = LiveJob(
        job_id=7,
        address="7",
        name="job",
        user="alice",
        account="lab",
        partition="gpu",
        qos="normal",
        state=JobState(base),
        reason="",
        comment="",
        nodes=() if base is BaseState.PENDING else ("n1", "n2"),
        node_count=2,
        cpus=2,
        gpus=0,
        time_limit=None,
        submitted=NOW - LONG_AGO,
        started=None if base is BaseState.PENDING else NOW - timedelta(minutes=30),
        ends=None,
        priority=1,
        restarts=0,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def past(base: BaseState, **changes: object) -> PastJob:
    record = PastJob(
        job_id=7,
        address="7",
        name="job",
        user="alice",
        account="lab",
        partition="gpu",
        qos="normal",
        state=JobState(base),
        exit_code=0,
        exit_signal=0,
        reason="",
        comment="",
        nodes=("n1", "n2"),
        submitted=NOW - LONG_AGO,
        started=NOW - timedelta(minutes=30),
        ended=NOW - timedelta(minutes=5),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def sight(
    *records: LiveJob,
    past: tuple[PastJob, ...] | None = (),
    absent: timedelta | None = None,
    accounting: bool = True,
    word: str = "",
) -> Sight:
    return Sight(
        live=records,
        past=past,
        has_accounting=accounting,
        absent_for=absent,
        last_word=word,
        now=NOW,
    )


@pytest.mark.parametrize(
    ("base", "state"),
    [
        (BaseState.PENDING, State.PENDING),
        (BaseState.RUNNING, State.RUNNING),
        (BaseState.SUSPENDED, State.SUSPENDED),
    ],
)
def test_what_squeue_shows_alive_is_alive(base: BaseState, state: State) -> None:
    # Accounting still has the end of an earlier attempt.
    earlier = past(BaseState.NODE_FAIL)
    verdict = judge(sight(live(base), past=(earlier,)), PATIENCE)
    assert verdict.state is state
    assert not verdict.is_over


def test_a_waiting_job_says_why() -> None:
    waiting = live(BaseState.PENDING, reason="Resources")
    assert judge(sight(waiting), PATIENCE).reason == "Resources"


def test_a_completing_job_still_runs() -> None:
    ending = live(
        BaseState.COMPLETED,
        state=JobState(BaseState.COMPLETED, frozenset({"COMPLETING"})),
    )
    verdict = judge(sight(ending), PATIENCE)
    assert verdict.state is State.RUNNING


@pytest.mark.parametrize(
    ("base", "state"),
    [
        (BaseState.COMPLETED, State.COMPLETED),
        (BaseState.CANCELLED, State.CANCELLED),
        (BaseState.FAILED, State.FAILED),
        (BaseState.TIMEOUT, State.FAILED),
        (BaseState.OUT_OF_MEMORY, State.FAILED),
        (BaseState.DEADLINE, State.FAILED),
    ],
)
def test_an_end_in_accounting_is_an_end(base: BaseState, state: State) -> None:
    verdict = judge(sight(past=(past(base),), absent=LONG_AGO), PATIENCE)
    assert verdict.state is state
    assert verdict.is_over


def test_one_empty_answer_never_means_gone() -> None:
    verdict = judge(sight(past=(), absent=timedelta(0)), PATIENCE)
    assert verdict.state is None


def test_absence_is_not_believed_while_accounting_is_silent() -> None:
    verdict = judge(sight(past=None, absent=LONG_AGO), PATIENCE)
    assert verdict.state is None


def test_accounting_that_lags_is_waited_for() -> None:
    lagging = past(BaseState.RUNNING, ended=None)
    absent = PATIENCE.lost - timedelta(seconds=1)
    assert judge(sight(past=(lagging,), absent=absent), PATIENCE).state is None


def test_a_job_that_nobody_knows_any_more_is_lost() -> None:
    verdict = judge(sight(past=(), absent=PATIENCE.lost), PATIENCE)
    assert verdict.state is State.FAILED
    assert verdict.is_lost


@pytest.mark.parametrize("base", [BaseState.NODE_FAIL, BaseState.PREEMPTED])
def test_what_slurm_may_requeue_is_final_only_if_it_stays_away(base: BaseState) -> None:
    gone = past(base)
    soon = judge(sight(past=(gone,), absent=timedelta(seconds=5)), PATIENCE)
    late = judge(sight(past=(gone,), absent=PATIENCE.comeback), PATIENCE)
    assert soon.state is None
    assert late.state is State.FAILED
    assert late.reason


def test_exit_code_0_is_no_success_if_a_step_ran_out_of_memory() -> None:
    steps = (
        PastStep("batch", JobState(BaseState.COMPLETED), 0, 0),
        PastStep("0", JobState(BaseState.OUT_OF_MEMORY), 0, 125),
    )
    ended = past(BaseState.COMPLETED, steps=steps)
    verdict = judge(sight(past=(ended,), absent=LONG_AGO), PATIENCE)
    assert verdict.state is State.FAILED
    assert "Step 0 ran out of memory" in verdict.reason


def test_a_job_that_squeue_shows_ended_waits_for_its_steps() -> None:
    ended = live(BaseState.COMPLETED, ends=NOW - timedelta(seconds=1))
    assert judge(sight(ended, past=()), PATIENCE).state is None
    told = past(BaseState.COMPLETED)
    assert judge(sight(ended, past=(told,)), PATIENCE).state is State.COMPLETED


def test_squeue_alone_will_do_when_accounting_never_says() -> None:
    ended = live(BaseState.TIMEOUT, ends=NOW - PATIENCE.accounting)
    verdict = judge(sight(ended, past=()), PATIENCE)
    assert verdict.state is State.FAILED
    assert verdict.reason == "It reached its time limit."


def test_without_accounting_squeues_last_word_counts() -> None:
    seen = sight(past=None, absent=LONG_AGO, accounting=False, word="COMPLETED")
    assert judge(seen, PATIENCE).state is State.COMPLETED


def test_without_accounting_a_vanished_job_says_so() -> None:
    seen = sight(past=None, absent=LONG_AGO, accounting=False, word="RUNNING")
    verdict = judge(seen, PATIENCE)
    assert verdict.state is State.FAILED
    assert "no accounting" in verdict.reason
    assert not verdict.is_lost  # it had started: it must not be sent again


def test_the_exit_code_and_the_signal_are_told() -> None:
    failed = past(BaseState.FAILED, exit_code=3)
    killed = past(BaseState.FAILED, exit_code=0, exit_signal=9)
    first = judge(sight(past=(failed,), absent=LONG_AGO), PATIENCE)
    second = judge(sight(past=(killed,), absent=LONG_AGO), PATIENCE)
    assert first.reason == "It ended with exit code 3."
    assert first.exit_code == 3
    assert second.reason == "It was ended by signal 9."


def test_each_start_is_an_attempt() -> None:
    first = past(
        BaseState.NODE_FAIL,
        started=NOW - timedelta(minutes=50),
        ended=NOW - timedelta(minutes=40),
    )
    verdict = judge(sight(live(BaseState.RUNNING), past=(first,)), PATIENCE)
    assert [start.state for start in verdict.starts] == ["NODE_FAIL", "RUNNING"]
    assert verdict.starts[0].ended_at == NOW - timedelta(minutes=40)
    assert verdict.starts[1].ended_at is None


def test_of_a_job_that_just_ended_the_whole_list_of_nodes_is_told() -> None:
    """For a moment accounting has the batch host alone (seen on 22.05)."""
    short = past(BaseState.COMPLETED, nodes=("n1",))
    ended = live(BaseState.COMPLETED, ends=NOW - timedelta(minutes=5))
    (start,) = judge(sight(ended, past=(short,)), PATIENCE).starts
    assert start.nodes == ("n1", "n2")
    assert start.exit_code == 0


def test_an_attempt_that_was_requeued_says_so() -> None:
    requeued = past(
        BaseState.CANCELLED,
        state=JobState(BaseState.CANCELLED, frozenset({"REQUEUED"})),
    )
    waiting = live(BaseState.PENDING, reason="BeginTime")
    verdict = judge(sight(waiting, past=(requeued,)), PATIENCE)
    assert verdict.state is State.PENDING
    assert [(s.state, s.reason) for s in verdict.starts] == [
        ("REQUEUED", "It was requeued.")
    ]


def test_a_job_cancelled_before_it_started_has_no_attempt() -> None:
    never = past(BaseState.CANCELLED, nodes=(), started=NOW, ended=NOW)
    verdict = judge(sight(past=(never,), absent=LONG_AGO), PATIENCE)
    assert verdict.state is State.CANCELLED
    assert verdict.starts == ()


def test_a_job_that_lost_a_node_and_went_on_is_one_attempt() -> None:
    before = past(
        BaseState.RUNNING,
        state=JobState(BaseState.RUNNING, frozenset({"RESIZING"})),
        ended=NOW - timedelta(minutes=20),
    )
    after = past(
        BaseState.COMPLETED, started=NOW - timedelta(minutes=20), nodes=("n1",)
    )
    verdict = judge(sight(past=(before, after), absent=LONG_AGO), PATIENCE)
    assert len(verdict.starts) == 1
    assert verdict.starts[0].started_at == NOW - timedelta(minutes=30)
    assert verdict.starts[0].nodes == ("n1", "n2")
    assert verdict.state is State.COMPLETED


def test_an_array_runs_while_one_task_does_and_names_those_that_failed() -> None:
    tasks = [
        past(BaseState.COMPLETED, address="7_0"),
        past(BaseState.FAILED, address="7_1", exit_code=2),
    ]
    running = live(
        BaseState.RUNNING, job_id=9, address="7_2", array_job_id=7, array_task_id=2
    )
    busy = judge(sight(running, past=tuple(tasks)), PATIENCE)
    assert busy.state is State.RUNNING
    done = judge(sight(past=tuple(tasks), absent=LONG_AGO), PATIENCE)
    assert done.state is State.FAILED
    assert done.reason == "1 of 2 tasks (1): It ended with exit code 2."
    assert {start.task for start in done.starts} == {0, 1}
    part = replace(sight(past=tuple(tasks), absent=LONG_AGO), offset=1000)
    assert "1 of 2 tasks (1001)" in judge(part, PATIENCE).reason


def task(number: int, base: BaseState) -> LiveJob:
    ended = replace(live(base), ends=NOW - timedelta(seconds=1))
    return replace(ended, array_job_id=7, array_task_id=number, address=f"7_{number}")


def test_a_draft_that_accounting_has_of_an_array_says_nothing() -> None:
    tasks = task(0, BaseState.COMPLETED), task(1, BaseState.FAILED)
    draft = past(BaseState.COMPLETED, address="7")
    verdict = judge(sight(*tasks, past=(draft,)), PATIENCE)
    assert verdict.state is None
    assert [start.task for start in verdict.starts] == [0, 1]


def test_an_array_is_over_when_accounting_has_the_end_of_each_task() -> None:
    tasks = task(0, BaseState.COMPLETED), task(1, BaseState.FAILED)
    first = past(BaseState.COMPLETED, address="7_0")
    second = past(BaseState.FAILED, address="7_1", exit_code=3)
    assert judge(sight(*tasks, past=(first,)), PATIENCE).state is None
    assert judge(sight(*tasks, past=(first, second)), PATIENCE).state is State.FAILED


def test_an_earlier_start_in_accounting_is_not_the_end_of_the_newest() -> None:
    newest = live(BaseState.COMPLETED, started=NOW - timedelta(minutes=1), ends=NOW)
    earlier = past(BaseState.NODE_FAIL)
    assert judge(sight(newest, past=(earlier,)), PATIENCE).state is None
    later = past(BaseState.COMPLETED, started=newest.started, submitted=NOW)
    verdict = judge(sight(newest, past=(earlier, later)), PATIENCE)
    assert verdict.state is State.COMPLETED


def test_a_job_in_parts_is_as_its_parts_are() -> None:
    done = Verdict(State.COMPLETED)
    assert combined([done, Verdict(State.RUNNING)]).state is State.RUNNING
    assert combined([done, Verdict(State.FAILED, "x")]).reason == "x"
    assert combined([done, done]).state is State.COMPLETED
    assert combined([done, Verdict(None)]).state is None
