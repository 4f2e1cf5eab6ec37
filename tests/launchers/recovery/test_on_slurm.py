"""Nodes and ranks die on the real Slurm; the training ends with the very same bits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from hpcplat.cluster.census import members
from hpcplat.ledger import ledger

pytest.importorskip("megatron.core")
pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter
Job = Any  # conftest.Job; conftest is no module to import from
STEPS = 30


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


def assert_same(job: Job, undisturbed: Job) -> None:
    """Hold weights, optimizer, generators, samples and losses against the other run."""
    assert job.state() == "COMPLETED", job.log()
    one, other = job.final.manifest, undisturbed.final.manifest
    assert (one.step, one.samples) == (STEPS, other.samples)
    digests = {key: entry.digest for key, entry in one.tensors.items()}
    assert digests == {key: entry.digest for key, entry in other.tensors.items()}
    assert one.extras == other.extras
    assert job.steps == undisturbed.steps


def test_a_spare_takes_the_place_of_a_dead_node(
    submit: Submit, undisturbed: Job
) -> None:
    job = submit()
    job.until_step(13)
    first, dead = job.nodes
    job.cluster.kill_node(dead)
    job.wait()
    assert_same(job, undisturbed)
    assert job.kinds("node-lost")[0].details["node"] == dead
    assert job.nodes[0] == first
    assert job.nodes[1] != dead
    (resumed,) = job.kinds("resumed")
    assert resumed.details["from_memory"]
    # Of a step that ends as the node dies, the copy may not have left it yet.
    assert resumed.details["step"] >= 12
    assert job.lines <= STEPS + 1
    assert [event.attempt for event in job.events] == [1] * len(job.events)
    assert job.kinds("recovered")[0].details["step"] > resumed.details["step"]


def test_a_second_node_dies_right_after_the_first(
    submit: Submit, undisturbed: Job
) -> None:
    job = submit(resources={"spare_nodes": 2})
    job.until_step(8)
    job.cluster.kill_node(job.nodes[1])
    job.until_step(job.kinds("ranks-started")[0].details["generation"] + 10)
    while not job.kinds("recovered"):
        assert job.state() == "RUNNING"
    job.cluster.kill_node(job.nodes[1])
    job.wait()
    assert_same(job, undisturbed)
    assert [event.details["from_memory"] for event in job.kinds("resumed")] == [
        True
    ] * 2


def test_without_copies_the_disk_is_enough(submit: Submit, undisturbed: Job) -> None:
    job = submit(recovery={"memory_copies_every": 0})
    job.until_step(14)
    job.cluster.kill_node(job.nodes[1])
    job.wait()
    assert_same(job, undisturbed)
    (resumed,) = job.kinds("resumed")
    assert resumed.details["step"] == 10
    assert job.lines > STEPS  # steps were run again, and the journal saw the same bits


def test_a_killed_rank_is_started_again_where_it_was(
    submit: Submit, undisturbed: Job
) -> None:
    job = submit(resources={"spare_nodes": 0})
    job.until_step(12)
    before = job.nodes
    job.rank(3).kill()
    job.wait()
    assert_same(job, undisturbed)
    assert job.nodes == before
    failed = job.kinds("rank-failed")[0].details
    assert (failed["rank"], failed["node"], failed["code"]) == (3, before[1], 137)
    assert job.kinds("resumed")[0].details["from_memory"]


def test_a_stopped_rank_is_named_and_started_again(
    submit: Submit, undisturbed: Job
) -> None:
    job = submit(resources={"spare_nodes": 0})
    job.until_step(12)
    job.rank(2).suspend()
    job.wait()
    assert_same(job, undisturbed)
    (hang,) = job.kinds("rank-hangs")
    assert (hang.details["rank"], hang.details["node"]) == (2, job.nodes[1])
    assert "its process is stopped" in hang.what


def test_a_frozen_node_is_replaced_although_nothing_closed(
    submit: Submit, undisturbed: Job
) -> None:
    job = submit()
    job.until_step(12)
    frozen = job.nodes[1]
    processes = [
        member.process
        for member in members(job.cluster.folder.path)
        if member.node == frozen and member.process.name() != "slurmd"
    ]
    for process in processes:
        process.suspend()
    until(lambda: job.kinds("recovered"), "the recovery")
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    job.wait()
    assert_same(job, undisturbed)
    (lost,) = job.kinds("node-lost")
    assert lost.details["node"] == frozen
    assert "silent" in lost.what


def test_a_rank_that_always_fails_ends_the_job_with_the_reason(submit: Submit) -> None:
    job = submit(
        resources={"spare_nodes": 0},
        recovery={"max_failures": 2},
        settings={"model": {"vocab_size": 8}},
    ).wait()
    assert job.state() == "FAILED"
    assert len(job.kinds("recovering")) <= 2
    assert job.kinds("attempt-ended")[-1].details["reason"]


def test_the_warning_saves_and_goes_on_in_another_attempt(
    submit: Submit, undisturbed: Job
) -> None:
    job = submit(resources={"spare_nodes": 0})
    job.until_step(12)
    job.cluster.run("scancel", "--batch", "--signal=USR2", job.job_id)
    until(lambda: job.show()["Restarts"] == "1", "the requeue")
    until(lambda: job.state() == "PENDING", "the queue")
    job.cluster.run("scontrol", "update", f"jobid={job.job_id}", "StartTime=now+2")
    job.wait()
    assert_same(job, undisturbed)
    (asked,) = job.kinds("requeue-asked")
    assert asked.attempt == 1
    (resumed,) = job.kinds("resumed")
    assert (resumed.attempt, resumed.details["step"]) == (2, asked.details["step"])
    assert job.lines == STEPS  # saved where it stopped: nothing was run twice


def test_without_a_spare_the_job_goes_back_into_the_queue(
    submit: Submit, undisturbed: Job
) -> None:
    job = submit(resources={"spare_nodes": 0})
    job.until_step(12)
    dead = job.nodes[1]
    job.cluster.kill_node(dead)
    until(lambda: job.kinds("requeue-asked"), "the requeue")
    # As the service does: else Slurm waits for the node, and then for two minutes.
    job.cluster.run("scontrol", "update", f"nodename={dead}", "state=down", "reason=x")
    until(lambda: job.state() == "PENDING", "the queue")
    job.cluster.run("scontrol", "update", f"jobid={job.job_id}", "StartTime=now+2")
    job.wait()
    assert_same(job, undisturbed)
    assert job.kinds("resumed")[0].details["step"] == 10
    assert dead not in job.nodes
    found = ledger(job.events)
    assert len(found.failures) == 1
    assert found.lost_steps >= 2
    assert 0 < found.ratio < 1


def test_without_a_spare_fewer_replicas_go_on_where_the_policy_allows(
    submit: Submit, undisturbed: Job
) -> None:
    job = submit(
        resources={"spare_nodes": 0},
        parallelism={"tensor": 2},  # two replicas, one on each node
        recovery={"shrink": True},
        settings={"model": {"vocab_size": 512}},  # no dropout: losses can be near
    )
    job.until_step(12)
    job.cluster.kill_node(job.nodes[1])
    until(lambda: job.kinds("recovered"), "the recovery")
    job.cluster.revive_node(job.kinds("node-lost")[0].details["node"])
    job.wait()
    assert job.state() == "COMPLETED", job.log()
    assert len(job.nodes) == 1
    (resumed,) = job.kinds("resumed")
    assert resumed.details["from_memory"]  # the state of the ranks with its coordinates
    assert resumed.details["step"] >= 11  # the step under way may be made again
    assert job.lines <= STEPS + 1
    assert job.samples == undisturbed.samples  # the same global batches, in order


def test_a_slow_rank_is_named(submit: Submit) -> None:
    """It is stopped for two thirds of the time, again and again: no hang, but slow."""
    job = submit(
        resources={"spare_nodes": 0, "tasks_per_node": 1},
        parallelism={},
        settings={"steps": 5000, "batch": {"global_size": 2, "micro_size": 1}},
    )
    job.until_step(3)
    process = job.rank(1)
    end = time.monotonic() + 120
    while not job.kinds("rank-slow"):
        assert time.monotonic() < end, "the slow rank was not named"
        process.suspend()
        time.sleep(0.3)
        process.resume()
        time.sleep(0.15)
    event = job.kinds("rank-slow")[0].details
    assert (event["rank"], event["node"]) == (1, job.nodes[1])
    assert event["own_seconds"] > 2 * event["peers_seconds"]
    assert not job.kinds("rank-hangs")
