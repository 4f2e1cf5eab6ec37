"""A real cluster: jobs on GPUs over two nodes, a node's death and return, the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcplat.cluster import Cluster

pytestmark = pytest.mark.slurm


def eventually(is_so: Callable[[], bool], limit: float = 60.0) -> None:
    """Wait until it is so; fail after ``limit`` seconds."""
    end = time.monotonic() + limit
    while not is_so():
        assert time.monotonic() < end, f"not so within {limit:g} s"
        time.sleep(0.1)


def submit(cluster: Cluster, folder: Path, script: str, *options: str) -> int:
    path = folder / "job.sh"
    path.write_text(f"#!/bin/bash\n{script}\n")
    done = cluster.run(
        "sbatch", "--parsable", f"--output={folder}/out", *options, str(path)
    )
    assert done.ok, done.stderr
    return int(done.stdout.split(";")[0])


def state(cluster: Cluster, job: int) -> str:
    done = cluster.run("scontrol", "show", "job", "-o", str(job))
    words = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
    return words["JobState"]


def test_a_job_over_two_nodes_sees_its_gpus(cluster: Cluster, tmp_path: Path) -> None:
    line = 'echo "$SLURM_PROCID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"'
    job = submit(
        cluster,
        tmp_path,
        f"srun --ntasks-per-node=2 --gpus-per-node=2 bash -c '{line}'",
        "--nodes=2",
        "--ntasks-per-node=2",
        "--gpus-per-node=2",
        "--time=1",
    )
    eventually(lambda: state(cluster, job) == "COMPLETED")
    ranks = sorted(line.split() for line in (tmp_path / "out").read_text().splitlines())
    assert [rank[0] for rank in ranks] == ["0", "1", "2", "3"]
    assert {rank[1] for rank in ranks[:2]} != {rank[1] for rank in ranks[2:]}
    assert {rank[2] for rank in ranks} == {"0,1"}
