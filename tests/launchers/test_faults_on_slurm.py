"""What is left and what is said when agents, coordinators and nodes die."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpcplat.cluster import Cluster
from hpcplat.eventlog import EventKind

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter


STRANGER = (
    b'{"kind":"Join","word":"wrong","node":"n1","node_index":0,"host":"h",'
    b'"via":"v","port":1}\n'
)


def _marked(mark: str) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if mark in " ".join(p.info["cmdline"] or ())]


def _up(submit: Submit, mark: str, **fields: Any) -> Any:  # noqa: ANN401
    job = submit(f"echo up; sleep {mark}; true", resources={"nodes": 2}, **fields)
    for rank in (0, 1):
        job.until_logged("up", rank)
    return job


def test_a_killed_agent_takes_its_ranks_and_the_job_with_it(submit: Submit) -> None:
    job = _up(submit, mark := f"7{os.getpid()}1")
    agents = job.processes("launchers.agent")
    there = [a for a in agents if a.environ().get("SLURM_NODEID") == "1"]
    agent = min(there, key=lambda a: a.create_time())  # the other is its guard
    began = time.monotonic()
    agent.kill()
    job.wait()
    assert time.monotonic() - began < 10
    assert job.state() == "FAILED"
    assert "The agent of " in job.verdict()["reason"]
    assert job.events(EventKind.NODE_LOST)
    assert not _marked(mark)


def test_a_killed_coordinator_leaves_nothing_behind(submit: Submit) -> None:
    job = _up(submit, mark := f"7{os.getpid()}2")
    (coordinator,) = (
        process
        for process in job.processes("launchers.coordinator")
        if "python" in process.name()
    )
    began = time.monotonic()
    coordinator.kill()
    job.wait()
    assert time.monotonic() - began < 15
    assert (job.state(), job.exit_code()) == ("FAILED", 137)
    assert not _marked(mark)


def test_a_rank_that_fails_stops_those_that_ignore_it(submit: Submit) -> None:
    script = "trap '' TERM; [ $RANK = 1 ] && exit 9; sleep 99; sleep 99"
    began = time.monotonic()
    job = submit(script, resources={"nodes": 2}, recovery={"grace": "1s"}).wait()
    assert time.monotonic() - began < 15
    assert job.exit_code() == 9
    assert job.verdict()["rank"] == 1


def test_an_unusable_plan_is_said_in_the_log(submit: Submit) -> None:
    job = submit("true", sbatch={"begin": "now+2seconds"})
    job.folder.plan.write_text("{")
    job.wait()
    assert job.state() == "FAILED"
    log = job.folder.attempt(1).batch_log.read_text()
    assert "hpcplat: " in log
    assert "plan.json is not a launch plan" in log


def test_a_stranger_does_not_get_in(submit: Submit) -> None:
    job = _up(submit, f"7{os.getpid()}3")
    meeting = json.loads(job.folder.attempt(1).meeting.read_text())
    for hello in (
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"kind":"Finish","code":0}\n',
        STRANGER,
        b"x" * 2_000_000,
    ):
        with socket.create_connection(("127.0.0.1", meeting["port"])) as sock:
            sock.settimeout(15)
            try:
                sock.sendall(hello)
                assert sock.recv(100) == b""
            except ConnectionError:
                continue
    assert job.state() == "RUNNING"


def test_a_dead_node_is_named_within_seconds(
    fresh_cluster: Callable[..., Cluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    submitter: Callable[[Path], Submit],
) -> None:
    cluster = fresh_cluster(spares=0)
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    submit = submitter(tmp_path)
    job = submit(
        "echo up; sleep 99",
        resources={"nodes": 2, "spare_nodes": 1},
    )
    job.until_logged("up", 1)
    dead = job.events(EventKind.RANKS_STARTED)[0].details["nodes"][1]
    began = time.monotonic()
    cluster.kill_node(dead)
    while not job.events(EventKind.NODE_LOST):
        assert time.monotonic() - began < 10
        time.sleep(0.05)
    assert job.events(EventKind.NODE_LOST)[0].details["node"] == dead
    # Slurm itself would wait for SlurmdTimeout before it lets the job end.
    cluster.run("scontrol", "update", f"nodename={dead}", "state=down", "reason=test")
    job.wait()
    assert dead in job.verdict()["reason"]
