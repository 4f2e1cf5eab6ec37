"""A real cluster: GPUs, people, QOS, a node's death and return, the end of it all."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from hpcplat.cluster import Cluster, NodeGroup, census, find, up
from hpcplat.errors import NotFoundError

pytestmark = [pytest.mark.slurm, pytest.mark.matrix]

RANKS = 'echo "$SLURM_PROCID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"'


class Work:
    """Submits jobs to a cluster by Slurm's own commands and looks what they do."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.jobs: list[str] = []
        self._numbers = itertools.count()

    def submit(self, script: str, *options: str) -> str:
        path = self.folder / f"job-{next(self._numbers)}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        output = f"--output={self.folder}/%j.out"
        words = ("--parsable", "--time=5", output, *options, str(path))
        done = self.cluster.run("sbatch", *words)
        assert done.ok, done.stderr
        job = done.stdout.strip().split(";")[0]
        self.jobs.append(job)
        return job

    def show(self, job: str) -> Mapping[str, str]:
        done = self.cluster.run("scontrol", "show", "job", "-o", job)
        assert done.ok, done.stderr
        return dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)

    def reaches(self, job: str, state: str) -> None:
        eventually(lambda: self.show(job)["JobState"] == state)

    def output(self, job: str) -> list[str]:
        return (self.folder / f"{job}.out").read_text().splitlines()

    def history(self, job: str) -> list[str]:
        """Return the state of every attempt in accounting."""
        words = ("-D", "-X", "-n", "-P", "-o", "State", "-j", job)
        return self.cluster.run("sacct", *words).stdout.split()


def eventually(is_so: Callable[[], bool], limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not is_so():
        assert time.monotonic() < end, f"not so within {limit:g} s"
        time.sleep(0.1)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that every Unix user can enter and write to; tmp_path is not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def work(cluster: Cluster, folder: Path) -> Iterator[Work]:
    """Work on the session's cluster; nothing of it stays in the queue."""
    work = Work(cluster, folder)
    yield work
    if work.jobs:
        cluster.run("scancel", *work.jobs)
        words = ("-h", "-j", ",".join(work.jobs))
        eventually(lambda: not cluster.run("squeue", *words).stdout)


def processes_on(cluster: Cluster, node: str) -> int:
    return next(one.processes for one in cluster.status().nodes if one.name == node)


def test_a_job_over_two_nodes_sees_its_gpus(work: Work) -> None:
    job = work.submit(
        f"srun bash -c '{RANKS}'",
        "--nodes=2",
        "--ntasks-per-node=2",
        "--gpus-per-node=2",
    )
    work.reaches(job, "COMPLETED")
    ranks = sorted(line.split() for line in work.output(job))
    assert [number for number, _, _ in ranks] == ["0", "1", "2", "3"]
    nodes = [node for _, node, _ in ranks]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    assert {gpus for _, _, gpus in ranks} == {"0,1"}


def test_two_jobs_on_a_node_see_different_gpus(work: Work) -> None:
    options = ("--nodelist=n1", "--gpus-per-node=2", "--mem=1G")
    one, other = (work.submit(f"{RANKS}; sleep 60", *options) for _ in range(2))
    eventually(lambda: all((work.folder / f"{job}.out").exists() for job in work.jobs))
    eventually(lambda: all(work.output(job) for job in work.jobs))
    seen = {work.output(job)[0].split()[2] for job in (one, other)}
    assert seen == {"0,1", "2,3"}


def test_without_an_association_there_is_no_job(work: Work) -> None:
    done = work.cluster.run("sbatch", "--account=nobodys", "--wrap=true")
    assert not done.ok
    assert "Invalid account" in done.stderr


def test_spot_makes_room_for_prod_and_comes_back(work: Work) -> None:
    every_gpu = ("--nodes=5", "--gpus-per-node=4", "--mem=1G")
    spot = work.submit("sleep 60", "--qos=spot", *every_gpu)
    work.reaches(spot, "RUNNING")
    prod = work.submit("sleep 60", "--qos=prod", *every_gpu)
    work.reaches(prod, "RUNNING")
    shown = work.show(spot)
    assert (shown["JobState"], shown["Restarts"]) == ("PENDING", "1")
    eventually(lambda: work.history(spot)[0] == "PREEMPTED")


def test_the_spare_is_taken_last(work: Work) -> None:
    job = work.submit("sleep 60", "--nodes=4", "--gpus-per-node=4", "--mem=1G")
    work.reaches(job, "RUNNING")
    assert work.show(job)["NodeList"] == "n[1-4]"


def test_rest_answers_those_with_a_token(cluster: Cluster) -> None:
    report = cluster.status()
    token = cluster.run("scontrol", "token").stdout.strip().partition("=")[2]
    address = f"{report.rest_url}/openapi/v3"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(address, timeout=10)
    headers = {
        "X-SLURM-USER-NAME": cluster.layout.user,
        "X-SLURM-USER-TOKEN": token,
        "Accept": "application/json",
    }
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert "/slurm/" in json.dumps(json.load(answer)["paths"])


def test_jobs_of_two_people(
    work: Work, unix_users: tuple[str, ...], cluster: Cluster
) -> None:
    jobs = [
        work.submit(
            "id -un; srun --ntasks-per-node=1 id -un; sleep 1",
            f"--uid={user}",
            f"--gid={user}",
            "--nodes=2",
            "--gpus-per-node=1",
            "--mem=1G",
        )
        for user in unix_users
    ]
    for job, user, account in zip(jobs, unix_users, ("nlp", "vision"), strict=True):
        work.reaches(job, "COMPLETED")
        assert work.output(job) == [user] * 3
        assert work.show(job)["Account"] == account
    words = ("--uid=alice", "--gid=alice", "--account=vision", "--wrap=true")
    assert "Invalid account" in cluster.run("sbatch", *words).stderr


def test_a_cluster_that_is_up_stays_as_it_is(cluster: Cluster) -> None:
    before = cluster.status()
    assert before.works
    assert not before.dead
    assert up(cluster.spec) == cluster == find(cluster.folder.path)
    after = cluster.status()
    assert after.services == before.services
    assert [node.pid for node in after.nodes] == [node.pid for node in before.nodes]


def test_a_node_that_is_not_there(cluster: Cluster) -> None:
    with pytest.raises(NotFoundError, match="n1, n2, n3, n4, n5"):
        cluster.kill_node("n9")


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


@pytest.mark.slow
def test_a_node_dies_and_comes_back(
    fresh_cluster: Callable[..., Cluster], folder: Path
) -> None:
    cluster = fresh_cluster(
        groups=(NodeGroup(3),),
        spares=0,
        settings={"SlurmdTimeout": "10"},
        requeue_delay=5,
    )
    work = Work(cluster, folder)
    (folder / "task.sh").write_text(STUBBORN)
    job = work.submit(
        f"srun bash {folder}/task.sh", "--nodes=2", "--requeue", "--nodelist=n1,n2"
    )
    # A step daemon, bash and its four sleeps.
    eventually(lambda: processes_on(cluster, "n2") == 6)
    on_n1 = processes_on(cluster, "n1")

    assert cluster.kill_node("n2") == 1 + 6
    assert processes_on(cluster, "n2") == 0
    assert processes_on(cluster, "n1") == on_n1
    assert cluster.status().dead == ("n2",)

    eventually(lambda: work.history(job)[0] == "NODE_FAIL")
    cluster.revive_node("n2")
    assert not cluster.status().dead
    eventually(lambda: work.history(job) == ["NODE_FAIL", "RUNNING"])
    eventually(lambda: processes_on(cluster, "n2") == 6)

    cluster.down()
    assert_nothing_is_left(cluster)


@pytest.mark.slow
def test_a_stopped_step_daemon_does_not_keep_its_node_away(
    fresh_cluster: Callable[..., Cluster], folder: Path
) -> None:
    """A new slurmd waits for ever for a step daemon that is stopped."""
    cluster = fresh_cluster(groups=(NodeGroup(1),), spares=0)
    work = Work(cluster, folder)
    work.submit("exec sleep 1234 > /dev/null 2>&1")
    eventually(lambda: processes_on(cluster, "n1") == 2)
    for member in census.members(cluster.folder.path):
        if member.node == "n1":
            member.process.suspend()
            if member.daemon:
                member.process.kill()
    eventually(lambda: cluster.status().dead == ("n1",))
    cluster.revive_node("n1")
    assert not cluster.status().dead


@pytest.mark.slow
def test_clusters_side_by_side(
    fresh_cluster: Callable[..., Cluster], folder: Path
) -> None:
    """Two with the same names of nodes and even of cluster: only folders differ."""
    one, other = (
        fresh_cluster(name="twin", groups=(NodeGroup(1, gpus=1),), spares=0)
        for _ in range(2)
    )
    for cluster in (one, other):
        Work(cluster, folder).submit("sleep 1234")
    for cluster in (one, other):
        eventually(lambda cluster=cluster: processes_on(cluster, "n1") > 1)  # type: ignore[misc]
    one.kill_node("n1")
    assert other.status().dead == ()
    assert processes_on(other, "n1") > 1
    one.down()
    assert_nothing_is_left(one)
    assert other.status().dead == ()
    assert processes_on(other, "n1") > 1
    other.down()
    assert_nothing_is_left(other)


def assert_nothing_is_left(cluster: Cluster) -> None:
    """No process, no file, no lock, no mount."""
    folder = cluster.folder
    assert not folder.path.exists()
    assert not folder.lock.exists()
    assert not census.members(folder.path)
    named = [one for one in psutil.process_iter() if names(one, folder.path)]
    assert not named
    assert str(folder.path) not in Path("/proc/mounts").read_text()


def names(process: psutil.Process, folder: Path) -> bool:
    """Whether the process has the folder in its arguments or environment."""
    try:
        words = [*process.cmdline(), *process.environ().values()]
    except psutil.Error:
        return False
    return any(str(folder) in word for word in words)
