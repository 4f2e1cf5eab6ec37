"""Nodes and ranks die on the real Slurm; the training ends with the very same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("megatron.core")
pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter
Job = Any  # conftest.Job; conftest is no module to import from
STEPS = 30


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
    assert resumed.details["step"] >= 13
    assert job.lines == STEPS  # no step was run twice
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
