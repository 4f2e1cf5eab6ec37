"""Who belongs to a cluster: shown on processes that only look like Slurm's."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hpcplat.cluster import census
from hpcplat.cluster.census import Member, kill_all, members
from hpcplat.cluster.daemons import CLUSTER_MARK, DAEMON_MARK
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.errors import UnavailableError


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    """Start a program with this environment and no other; return its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*argv: str, **environment: str) -> int:
        process = subprocess.Popen(argv, env=environment)
        started.append(process)
        return process.pid

    yield run
    for process in started:
        process.kill()
        process.wait()


def in_job(folder: Path, node: str) -> dict[str, str]:
    conf = str(ClusterFolder(folder).slurm_conf)
    return {"SLURM_CONF": conf, "SLURMD_NODENAME": node}


def seen(folder: Path) -> dict[int, tuple[str, str]]:
    return {one.process.pid: (one.daemon, one.node) for one in members(folder)}


def test_daemons_are_known_by_their_mark(
    start: Callable[..., int], tmp_path: Path
) -> None:
    marks = {CLUSTER_MARK: str(tmp_path), DAEMON_MARK: "slurmd-n2"}
    node = start("/bin/sleep", "60", **marks)
    service = start("/bin/sleep", "60", **{**marks, DAEMON_MARK: "munged"})
    start("/bin/sleep", "60", **{**marks, CLUSTER_MARK: f"{tmp_path}b"})
    assert seen(tmp_path) == {node: ("slurmd-n2", "n2"), service: ("munged", "")}


def test_what_a_job_runs_belongs_to_its_node(
    start: Callable[..., int], tmp_path: Path
) -> None:
    job = start("/bin/sleep", "60", **in_job(tmp_path, "n1"))
    start("/bin/sleep", "60", **in_job(tmp_path / "other", "n1"))
    assert seen(tmp_path) == {job: ("", "n1")}


def test_a_child_without_environment_belongs_to_its_parents_node(
    start: Callable[..., int], tmp_path: Path
) -> None:
    script = "env -i setsid sleep 60 & wait"
    shell = start("/bin/sh", "-c", script, PATH="/bin", **in_job(tmp_path, "n3"))
    end = time.monotonic() + 10
    while len(seen(tmp_path)) < 2:
        assert time.monotonic() < end
    found = seen(tmp_path)
    assert found.pop(shell) == ("", "n3")
    assert list(found.values()) == [("", "n3")]
    assert kill_all(lambda: members(tmp_path)) == 2


def test_a_shell_that_means_the_cluster_is_none_of_it(
    start: Callable[..., int], tmp_path: Path
) -> None:
    conf = str(ClusterFolder(tmp_path).slurm_conf)
    start("/bin/sleep", "60", SLURM_CONF=conf)
    assert seen(tmp_path) == {}


def test_an_srun_outside_a_job_is_on_no_node(
    start: Callable[..., int], tmp_path: Path
) -> None:
    sleep = shutil.which("sleep")
    assert sleep
    shutil.copy(sleep, tmp_path / "srun")
    conf = str(ClusterFolder(tmp_path).slurm_conf)
    client = start(str(tmp_path / "srun"), "60", SLURM_CONF=conf)
    assert seen(tmp_path) == {client: ("", "")}


def test_step_daemons_are_known_by_their_nodes_log(
    start: Callable[..., int], tmp_path: Path
) -> None:
    tail = shutil.which("tail")
    assert tail
    shutil.copy(tail, tmp_path / "slurmstepd")
    folder = ClusterFolder(tmp_path)
    folder.logs.mkdir()
    ours, others = folder.log("slurmd-n4"), tmp_path / "slurmd-n4.log"
    for log in (ours, others):
        log.touch()
    step = start(str(tmp_path / "slurmstepd"), "-f", str(ours))
    start(str(tmp_path / "slurmstepd"), "-f", str(others))
    end = time.monotonic() + 10
    while not seen(tmp_path):
        assert time.monotonic() < end
    assert seen(tmp_path) == {step: ("", "n4")}


def test_the_killed_leave_no_zombie(start: Callable[..., int], tmp_path: Path) -> None:
    pid = start("/bin/sleep", "60", **in_job(tmp_path, "n1"))
    assert kill_all(lambda: members(tmp_path)) == 1
    assert not psutil.pid_exists(pid)
    assert kill_all(lambda: members(tmp_path)) == 0


def test_what_does_not_die_is_named(tmp_path: Path) -> None:
    ended = subprocess.Popen(["/bin/true"])
    gone = psutil.Process(ended.pid)
    ended.wait()
    with pytest.raises(UnavailableError, match=f"Processes {ended.pid} could not"):
        kill_all(lambda: [Member(gone, "", "n1")], limit=0)


def test_a_job_that_looks_leaves_itself_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = psutil.Process()
    everybody = census._look_around()
    mine = census._Seen(me, me.ppid(), "python", in_job(tmp_path, "n1"))
    monkeypatch.setattr(census, "_look_around", lambda: {**everybody, me.pid: mine})
    assert me.pid not in seen(tmp_path)
