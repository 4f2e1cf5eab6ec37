"""A node dies under a job, is set down, and the job runs again: what the adapter sees."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from hpcplat.cluster import Cluster
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import LiveJob, PastJob, Scheduler, Submission
from hpcplat.slurm.states import may_come_back

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.matrix]


def _wait(
    scheduler: Scheduler, job_id: int, is_so: Callable[[LiveJob], bool]
) -> LiveJob:
    end = time.monotonic() + 60
    while True:
        job = next(job for job in scheduler.jobs() if job.job_id == job_id)
        if is_so(job):
            return job
        assert time.monotonic() < end, f"{job.state} {job.reason}"
        time.sleep(0.2)


def _both_attempts(
    scheduler: Scheduler, since: datetime, job_id: int
) -> Sequence[PastJob]:
    """Accounting lags: wait until it knows that the job runs again."""
    end = time.monotonic() + 60
    while True:
        past = scheduler.history(since, [job_id])
        if len(past) == 2 and past[1].started is not None:
            return past
        assert time.monotonic() < end, past
        time.sleep(0.2)


def test_a_job_outlives_its_node(
    fresh_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = fresh_cluster(spares=1)
    environ = os.environ | cluster.environment()
    scheduler = CommandLine(cluster.folder.slurm_conf, environ=environ)
    since = datetime.now(UTC) - timedelta(minutes=5)
    # The script outlives its step: ended by itself, the job would be FAILED before
    # anybody could tell Slurm of the node.
    step = "srun sleep 300 > /dev/null 2>&1 & sleep 300"
    script = f"#!/bin/bash\n#SBATCH --output=/dev/null\n{step}\n"
    options = ("--nodes=2", "--gres=gpu:h100:4", "--requeue", "--time=10")
    job_id = scheduler.submit(Submission(script, str(tmp_path), options)).job_id

    wait = partial(_wait, scheduler, job_id)
    first = wait(lambda job: str(job.state) == "RUNNING")
    dead = first.nodes[1]
    cluster.kill_node(dead)
    scheduler.set_node_state(dead, "down", "hpcplat: lost contact")
    waiting = wait(lambda job: job.restarts == 1 and str(job.state) == "PENDING")
    assert waiting.nodes == ()
    assert waiting.submitted > first.submitted
    down = next(node for node in scheduler.nodes() if node.name == dead)
    assert (down.state, down.reason) == ("DOWN", "hpcplat: lost contact")

    scheduler.start_now(str(job_id))
    again = wait(lambda job: str(job.state) == "RUNNING")
    assert again.job_id == first.job_id
    assert dead not in again.nodes
    assert (len(again.nodes), again.gpus, again.restarts) == (2, 8, 1)

    lost, now = _both_attempts(scheduler, since, job_id)
    assert str(lost.state) == "NODE_FAIL"
    assert may_come_back(lost.state)
    assert (lost.nodes, lost.submitted) == (first.nodes, first.submitted)
    assert lost.ended is not None
    assert (str(now.state), now.nodes) == ("RUNNING", again.nodes)
    assert now.submitted == again.submitted
