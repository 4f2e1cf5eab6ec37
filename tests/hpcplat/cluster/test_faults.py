"""What goes wrong while a cluster is made leaves nothing, and says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcplat import cluster as clusters
from hpcplat.cluster import Cluster, ClusterSpec, NodeGroup, census, clients, down, up
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.errors import ConflictError, InvalidError, NotFoundError, UnavailableError

pytestmark = pytest.mark.slurm

SMALL = (NodeGroup(1, gpus=1),)


@pytest.fixture
def spec(new_spec: Callable[..., ClusterSpec]) -> Iterator[ClusterSpec]:
    """Return what a small cluster should be; whatever came of it is taken down."""
    spec = new_spec(groups=SMALL, spares=0)
    yield spec
    down(spec.folder)


def assert_nothing_is_left(spec: ClusterSpec) -> None:
    assert not spec.folder.exists()
    assert not ClusterFolder(spec.folder).lock.exists()
    assert not census.members(spec.folder)


def test_a_half_started_one_is_taken_down_and_says_why(
    new_spec: Callable[..., ClusterSpec],
) -> None:
    spec = new_spec(groups=SMALL, spares=0, settings={"SchedulerType": "sched/nothing"})
    with pytest.raises(UnavailableError) as caught:
        up(spec)
    assert "slurmctld ended at once" in str(caught.value)
    assert "sched/nothing" in str(caught.value)
    assert_nothing_is_left(spec)


def test_a_folder_of_something_else_is_left_alone(spec: ClusterSpec) -> None:
    spec.folder.mkdir()
    precious = spec.folder / "thesis.tex"
    precious.write_text("all of it")
    for act in (lambda: up(spec), lambda: down(spec.folder)):
        with pytest.raises(ConflictError, match="no cluster"):
            act()
    assert precious.read_text() == "all of it"
    precious.unlink()


def test_a_file_in_the_place_of_the_folder(spec: ClusterSpec) -> None:
    spec.folder.write_text("")
    with pytest.raises(ConflictError, match="no cluster"):
        up(spec)
    spec.folder.unlink()
    below = ClusterSpec(folder=Path("/dev/null/cluster"))
    with pytest.raises(InvalidError, match="cannot be made"):
        up(below)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no other users")
def test_a_folder_that_others_cannot_enter(spec: ClusterSpec) -> None:
    closed = spec.folder
    closed.mkdir(mode=0o700)
    with pytest.raises(InvalidError, match=f"{closed} has mode 700"):
        up(ClusterSpec(folder=closed / "c"))
    assert not list(closed.iterdir())


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="bytes too long"):
        up(ClusterSpec(folder=tmp_path / ("d" * 90)))


def test_no_cluster_is_no_cluster(spec: ClusterSpec) -> None:
    with pytest.raises(NotFoundError, match="hpcplat cluster up"):
        clusters.find(spec.folder)
    assert down(spec.folder) is False


@pytest.mark.slow
def test_what_is_half_dead_is_not_taken_for_a_cluster(spec: ClusterSpec) -> None:
    running = up(spec)
    with pytest.raises(ConflictError, match="other settings"):
        up(ClusterSpec(name=spec.name, folder=spec.folder))
    running.kill_node("n1")
    assert running.status().dead == ("n1",)
    up(spec)
    assert running.status().dead == ()
    kill(running, "slurmctld")
    assert running.status().dead == ("slurmctld",)
    assert not running.status().works
    with pytest.raises(ConflictError, match=r"half dead: slurmctld does not run.*down"):
        up(spec)
    with pytest.raises(ConflictError, match="slurmctld does not run"):
        running.revive_node("n1")
    kill(running, "slurmdbd")
    with pytest.raises(UnavailableError, match="sacctmgr"):
        running.add_account("late")
    # After a reboot nothing runs, and the folder is still there.
    census.kill_all(lambda: census.members(spec.folder))
    with pytest.raises(ConflictError, match="half dead"):
        up(spec)
    assert down(spec.folder)
    assert_nothing_is_left(spec)


@pytest.mark.slow
def test_a_controller_that_hangs(
    spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = up(spec)
    monkeypatch.setattr(clients, "GLANCE", 1.0)
    for member in census.members(spec.folder):
        if member.daemon == "slurmctld":
            member.process.suspend()
    report = running.status()
    assert [node.state for node in report.nodes] == ["unknown"]
    with pytest.raises(UnavailableError, match=r"n1 \(unknown\)"):
        running.await_nodes(["n1"], limit=1)


def kill(cluster: Cluster, daemon: str) -> None:
    folder = cluster.folder.path
    census.kill_all(
        lambda: [one for one in census.members(folder) if one.daemon == daemon]
    )


def start_elsewhere(spec: ClusterSpec) -> subprocess.Popen[bytes]:
    program = (
        "import pathlib; from hpcplat.cluster import *\n"
        f"up(ClusterSpec(name={spec.name!r}, folder=pathlib.Path({str(spec.folder)!r}),"
        " groups=(NodeGroup(1, gpus=1),), spares=0))"
    )
    return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)


def wait_for_daemon(spec: ClusterSpec, daemon: str) -> None:
    ticking = threading.Event()
    while daemon not in {one.daemon for one in census.members(spec.folder)}:
        ticking.wait(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["munged", "slurmctld"])
def test_ctrl_c_leaves_nothing(spec: ClusterSpec, daemon: str) -> None:
    with start_elsewhere(spec) as starting:
        wait_for_daemon(spec, daemon)
        starting.send_signal(signal.SIGINT)
        starting.communicate(timeout=60)
    assert starting.returncode != 0
    assert_nothing_is_left(spec)


@pytest.mark.slow
def test_a_killed_start_can_be_taken_down(spec: ClusterSpec) -> None:
    with start_elsewhere(spec) as starting:
        wait_for_daemon(spec, "slurmdbd")
        starting.send_signal(signal.SIGKILL)
        starting.communicate(timeout=60)
    assert census.members(spec.folder)
    with pytest.raises(ConflictError, match="half dead"):
        up(spec)
    assert down(spec.folder)
    assert_nothing_is_left(spec)


@pytest.mark.slow
def test_two_starts_at_once_make_one_cluster(spec: ClusterSpec) -> None:
    with start_elsewhere(spec) as one, start_elsewhere(spec) as other:
        for starting in (one, other):
            _, complaint = starting.communicate(timeout=120)
            assert starting.returncode == 0, complaint
    names = [one.daemon for one in census.members(spec.folder) if one.daemon]
    assert sorted(names) == sorted(set(names))
    assert not clusters.find(spec.folder).status().dead
