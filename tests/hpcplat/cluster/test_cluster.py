"""A real cluster: jobs on GPUs over two nodes, a node's death and return, the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hpcplat.cluster import Cluster, NodeGroup, census

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


# Every way in which a child gets out of its parents' sight: a session of its own, a
# parent that is gone, a stopped process. None holds the step's output: slurmstepd
# would wait 60 s for that on the other node.
STUBBORN = """
exec > /dev/null 2>&1
setsid sleep 1234 &
(setsid sleep 1234 & ) &
sleep 1234 & kill -STOP $!
sleep 1234
"""


def living(cluster: Cluster, node: str) -> int:
    return next(one.processes for one in cluster.status().nodes if one.name == node)


@pytest.mark.slow
def test_a_node_dies_and_comes_back(
    fresh_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = fresh_cluster(
        groups=(NodeGroup(3),),
        spares=0,
        settings={"SlurmdTimeout": "5"},
        requeue_delay=5,
    )
    (tmp_path / "task.sh").write_text(f"#!/bin/bash\n{STUBBORN}")
    job = submit(
        cluster,
        tmp_path,
        f"echo $SLURM_RESTART_COUNT $SLURM_JOB_NODELIST\n"
        f"srun bash {tmp_path}/task.sh",
        "--nodes=2",
        "--requeue",
        "--open-mode=append",
        "--nodelist=n1,n2",
        "--time=5",
    )
    # A step daemon, bash and its four sleeps.
    eventually(lambda: living(cluster, "n2") == 6)
    on_n1 = living(cluster, "n1")

    assert cluster.kill_node("n2") == 1 + 6
    assert living(cluster, "n2") == 0
    assert living(cluster, "n1") == on_n1
    assert cluster.status().dead == ("n2",)

    eventually(lambda: history(cluster, job)[0] == "NODE_FAIL")
    cluster.revive_node("n2")
    assert not cluster.status().dead
    eventually(lambda: history(cluster, job) == ["NODE_FAIL", "RUNNING"])
    assert living(cluster, "n2") >= 6

    folder = cluster.folder.path
    cluster.down()
    assert not folder.exists()
    assert not census.members(folder)
    assert not [one for one in psutil.process_iter() if "1234" in one.cmdline()]


def history(cluster: Cluster, job: int) -> list[str]:
    done = cluster.run("sacct", "-D", "-X", "-n", "-P", "-o", "State", "-j", str(job))
    return done.stdout.split()
