"""What the service does about dead and drained nodes, on a real Slurm."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.client import Client
from hpcplat.cluster import Cluster, ClusterSpec, up
from hpcplat.embedding import EmbeddedTransport
from hpcplat.errors import ForbiddenError
from hpcplat.ids import new_job_id, submission_key
from hpcplat.slurm.commandline import CommandLine
from server.app import create_app
from server.database import Database
from server.judgement import Patience
from server.reconcile import Rhythm
from server.service import Service, Times

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

QUICK = Times(
    rhythm=Rhythm(fastest=0.3, slowest=0.5, idle=0.5),
    patience=Patience(comeback=timedelta(seconds=3), confirm=timedelta(seconds=1)),
)
# Counts to sixty, however often it is interrupted; goes elsewhere when it is warned.
COUNTING = """trap 'exit 75' USR2
[ "$RANK" = 0 ] || { while ! grep -q '^60$' count; do sleep 0.1; done; exit 0; }
n=$(tail -n 1 count 2>/dev/null || echo 0)
while [ "$n" -lt 60 ]; do n=$((n + 1)); echo "$n" >>count; sleep 0.25; done
"""
PATIENCE = 120.0


class Restricted(CommandLine):
    """Slurm as somebody sees it who may not set nodes down."""

    def set_node_state(self, node: str, state: str, reason: str = "") -> None:
        raise ForbiddenError("Access/permission denied", "Ask an operator.")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """A cluster whose nodes may be killed; each test revives what it killed."""
    name = f"test-{os.getpid()}-service"
    folder = Path(tempfile.gettempdir()) / f"hpcplat-{name}"
    running = up(ClusterSpec(name=name, folder=folder))
    yield running
    running.down()


Serve = Callable[..., Client]


@pytest.fixture
def serve(nodes: Cluster, tmp_path: Path) -> Iterator[Serve]:
    """Make a client of a service on that cluster."""
    made: list[Client] = []

    def make(kind: type[CommandLine] = CommandLine) -> Client:
        scheduler = kind(nodes.folder.slurm_conf, environ=dict(os.environ))
        database = Database(f"sqlite:///{tmp_path}/own.db")
        service = Service(database, scheduler, runs=str(tmp_path / "runs"), times=QUICK)
        transport = EmbeddedTransport(create_app(service, threads=True), os.geteuid())
        http = httpx.Client(base_url="http://test", transport=transport, timeout=60)
        made.append(Client(http))
        return made[-1]

    yield make
    for client in made:
        client.close()
    for node in nodes.spec.nodes:
        nodes.revive_node(node.name)
        words = ("update", f"nodename={node.name}", "state=resume")
        nodes.run("scontrol", *words)  # refused where it was well


def until(condition: Callable[[], Any], what: Callable[[], object]) -> Any:  # noqa: ANN401
    """Wait until a condition holds, and return what it gave."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, str(what())
        time.sleep(0.1)
    return found


def counting(api: Client) -> tuple[str, list[str]]:
    """Submit a training that counts; its id and its nodes once it counts."""
    asked = {
        "name": "counting",
        "kind": "train",
        "command": COUNTING,
        "resources": {"nodes": 2, "time": "5m", "memory": "100M"},
    }
    job_id = str(api.submit(asked, wait=60)["id"])
    folder = Path(api.job(job_id)["folder"])
    count, beacon = folder / "count", folder / "beacon.json"
    until(lambda: count.exists() and count.stat().st_size > 12, lambda: api.job(job_id))
    until(beacon.exists, lambda: sorted(folder.iterdir()))
    host = json.loads(beacon.read_text())["host"]
    nodes = [str(node) for node in api.attempts(job_id)[0]["nodes"]]
    return job_id, sorted(nodes, key=lambda node: node != host)


def ended(api: Client, job_id: str) -> dict[str, Any]:
    job = until(
        lambda: (j := api.job(job_id))["state"] in ("COMPLETED", "FAILED") and j,
        lambda: (api.job(job_id), api.events(job_id)),
    )
    assert job["state"] == "COMPLETED", (job, api.events(job_id))
    found: dict[str, Any] = job
    return found


def counted(job: dict[str, Any]) -> list[int]:
    lines = (Path(job["folder"]) / "count").read_text().split()
    return [int(line) for line in lines]


def test_a_dead_batch_host_is_set_down_and_the_job_goes_on_elsewhere(
    serve: Serve, nodes: Cluster
) -> None:
    api = serve()
    job_id, (host, _) = counting(api)
    killed = time.monotonic()
    nodes.kill_node(host)
    beacon = Path(api.job(job_id)["folder"]) / "beacon.json"
    until(lambda: json.loads(beacon.read_text())["cut_off"], beacon.read_text)
    until(
        lambda: any(e["kind"] == "node-died" for e in api.events(job_id)),
        lambda: api.events(job_id),
    )
    assert time.monotonic() - killed < 60  # Slurm itself waits for SlurmdTimeout
    job = ended(api, job_id)
    assert counted(job) == list(range(1, 61))  # nothing twice, nothing left out
    first, second = api.attempts(job_id)
    assert host in first["nodes"]
    assert host not in second["nodes"]
    (died,) = [e for e in api.events(job_id) if e["kind"] == "node-died"]
    assert (died["data"]["node"], died["data"]["act"]) == (host, "requeued")
    shown = nodes.run("scontrol", "-o", "show", "node", host).stdout
    assert "Reason=hpcplat: died" in shown


def test_where_no_node_may_be_set_down_the_job_is_submitted_elsewhere(
    serve: Serve, nodes: Cluster
) -> None:
    api = serve(Restricted)
    job_id, (host, _) = counting(api)
    before = api.attempts(job_id)[0]["slurm_job_id"]
    nodes.kill_node(host)
    job = ended(api, job_id)
    assert counted(job) == list(range(1, 61))
    first, second = api.attempts(job_id)
    assert host not in second["nodes"]
    assert second["slurm_job_id"] != first["slurm_job_id"] == before
    shown = nodes.run("scontrol", "-o", "show", "job", str(before)).stdout
    assert "JobState=RUNNING" not in shown


def test_a_script_of_ones_own_that_may_run_again_does_so_soon(
    serve: Serve, nodes: Cluster, tmp_path: Path
) -> None:
    """Slurm alone takes the node for dead after 30 s, and then waits for 120 s."""
    api = serve()
    script = f"#!/bin/bash\n#SBATCH --requeue --nodes=2 --mem=100M\nRANK=0\n{COUNTING}"
    file = tmp_path / "own.sh"
    file.write_text(script)
    key = submission_key(new_job_id(), 1, 0)
    words = ["--time=5", f"--chdir={tmp_path}", str(file)]
    told = nodes.run("sbatch", "--parsable", f"--comment={key}", *words)
    call = {"key": key, "words": words, "script": script, "folder": str(tmp_path)}
    (adopted,) = api.adopt([{**call, "job_id": int(told.stdout)}])
    job_id = str(adopted["job"])
    count = tmp_path / "count"
    until(lambda: count.exists() and count.stat().st_size > 12, lambda: api.job(job_id))
    until(lambda: api.attempts(job_id), lambda: api.job(job_id))
    host = min(api.attempts(job_id)[0]["nodes"])
    nodes.kill_node(host)
    ended(api, job_id)
    assert [int(line) for line in count.read_text().split()] == list(range(1, 61))
    _, second = api.attempts(job_id)
    assert host not in second["nodes"]
    assert "node-died" in [event["kind"] for event in api.events(job_id)]


def test_a_drained_node_is_left_by_the_job(serve: Serve, nodes: Cluster) -> None:
    api = serve()
    job_id, (_, other) = counting(api)
    words = ("update", f"nodename={other}", "state=drain", "reason=maintenance")
    assert nodes.run("scontrol", *words).ok
    job = ended(api, job_id)
    assert counted(job) == list(range(1, 61))
    first, second = api.attempts(job_id)
    assert other in first["nodes"]
    assert other not in second["nodes"]
    kinds = [event["kind"] for event in api.events(job_id)]
    assert "node-drained" in kinds
    assert "requeue-asked" in kinds
