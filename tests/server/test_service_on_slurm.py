"""Jobs through the API on a real Slurm, to all the ends that there are."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.client import Client, RefusedError
from hpcplat.cluster import Cluster
from hpcplat.cluster.census import members
from hpcplat.cluster.daemons import slurmctld
from hpcplat.cluster.startup import start_listener
from hpcplat.embedding import EmbeddedTransport
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
FINAL = {"COMPLETED", "FAILED", "CANCELLED"}


def service_on(cluster: Cluster, database: str, folder: Path) -> Service:
    scheduler = CommandLine(cluster.folder.slurm_conf, environ=dict(os.environ))
    return Service(
        Database(database), scheduler, runs=str(folder / "runs"), times=QUICK
    )


@pytest.fixture
def api(cluster: Cluster, database_url: str, tmp_path: Path) -> Iterator[Client]:
    service = service_on(cluster, database_url, tmp_path)
    transport = EmbeddedTransport(create_app(service, threads=True), os.geteuid())
    http = httpx.Client(base_url="http://test", transport=transport, timeout=60)
    with Client(http) as client:
        yield client


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Callable[[Cluster], Client]]:
    """Make a client of a service on a cluster of one's own."""
    made: list[Client] = []

    def make(cluster: Cluster) -> Client:
        service = service_on(cluster, f"sqlite:///{tmp_path}/own.db", tmp_path)
        transport = EmbeddedTransport(create_app(service, threads=True), os.geteuid())
        http = httpx.Client(base_url="http://test", transport=transport, timeout=60)
        made.append(Client(http))
        return made[-1]

    yield make
    for client in made:
        client.close()


def spec(command: object, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    resources = {"time": "5m", "memory": "100M", **changes.pop("resources", {})}
    return {"name": "test", "command": command, "resources": resources, **changes}


def submitted(api: Client, asked: dict[str, Any]) -> str:
    job = api.submit(asked, wait=60)
    assert job["state"] in {"PENDING", "RUNNING", *FINAL}, job
    return str(job["id"])


def await_state(
    api: Client, job_id: str, *states: str, limit: float = 90
) -> dict[str, Any]:
    deadline = time.monotonic() + limit
    while True:
        job = api.job(job_id)
        if job["state"] in (states or FINAL):
            return job
        assert time.monotonic() < deadline, (job, api.events(job_id))
        assert job["state"] not in FINAL, (job, api.events(job_id))
        time.sleep(0.2)


def await_attempt(api: Client, job_id: str, number: int) -> dict[str, Any]:
    deadline = time.monotonic() + 90
    while True:
        found = [a for a in api.attempts(job_id) if a["number"] == number]
        if found:
            return found[0]
        assert time.monotonic() < deadline, api.events(job_id)
        time.sleep(0.2)


def test_a_job_on_two_nodes_to_its_end(api: Client) -> None:
    asked = spec(
        'echo "rank $RANK has $CUDA_VISIBLE_DEVICES"',
        resources={"nodes": 2, "gpus_per_node": 2},
    )
    job_id = submitted(api, asked)
    job = await_state(api, job_id)
    assert (job["state"], job["exit_code"]) == ("COMPLETED", 0), job["reason"]
    assert api.logs(job_id, rank=3) == "rank 3 has 0,1\n"
    [attempt] = api.attempts(job_id)
    assert len(attempt["nodes"]) == 2
    assert attempt["ended_at"] is not None
    states = [e["state"] for e in api.events(job_id) if e["kind"] != "reason"]
    assert list(dict.fromkeys(states)) == ["QUEUED", "PENDING", "RUNNING", "COMPLETED"]
    assert api.script(job_id).startswith("#!/bin/bash")


def test_the_first_failing_ranks_last_line_is_the_reason(api: Client) -> None:
    asked = spec(
        'if [ "$RANK" = 1 ]; then echo "no such file: x" >&2; exit 7; fi; sleep 60',
        resources={"tasks_per_node": 2},
    )
    job = await_state(api, submitted(api, asked))
    assert (job["state"], job["exit_code"]) == ("FAILED", 7)
    assert "Rank 1" in job["reason"]
    assert "no such file: x" in job["reason"]


def test_exit_0_without_the_declared_outputs_is_a_failure(api: Client) -> None:
    job = await_state(api, submitted(api, spec("true", outputs=["model.pt"])))
    assert job["state"] == "FAILED"
    assert "model.pt is not there" in job["reason"]


def test_a_running_job_is_cancelled(api: Client) -> None:
    job_id = submitted(api, spec("sleep 300"))
    await_state(api, job_id, "RUNNING")
    api.cancel(job_id)
    job = await_state(api, job_id)
    assert job["state"] == "CANCELLED"
    assert "asked to cancel" in str(api.events(job_id))


def test_a_requeue_is_a_second_attempt_with_its_own_log(api: Client) -> None:
    asked = spec("echo once; exec sleep 300", recovery={"requeue": True})
    job_id = submitted(api, asked)
    await_state(api, job_id, "RUNNING")
    await_attempt(api, job_id, 1)
    with closing(api.follow_logs(job_id)) as log:
        assert next(log).data == "once\n"
    api.requeue(job_id)
    second = await_attempt(api, job_id, 2)
    assert second["slurm_job_id"] == api.job(job_id)["slurm_job_id"]
    api.cancel(job_id)
    await_state(api, job_id)
    first, second = api.attempts(job_id)
    assert first["ended_at"] is not None
    assert first["started_at"] < second["started_at"]
    assert api.logs(job_id, attempt=1) == "once\n"


def test_array_tasks_have_states_of_their_own(api: Client) -> None:
    asked = spec(
        "case $SLURM_ARRAY_TASK_ID in 1) exit 3;; 2) sleep 300;; esac",
        array="0-3%4",
    )
    job_id = submitted(api, asked)
    await_state(api, job_id, "RUNNING")
    deadline = time.monotonic() + 60
    while {a["task"] for a in api.attempts(job_id)} != {0, 1, 2, 3}:
        assert time.monotonic() < deadline, api.attempts(job_id)
        time.sleep(0.3)
    api.cancel(job_id, task=2)
    job = await_state(api, job_id)
    assert job["state"] == "FAILED"
    told = {a["task"]: a["state"] for a in api.attempts(job_id)}
    assert told == {0: "COMPLETED", 1: "FAILED", 2: "CANCELLED", 3: "COMPLETED"}


def test_a_job_after_another_starts_when_that_has_ended_well(api: Client) -> None:
    first = submitted(api, spec("sleep 2", name="first"))
    second = submitted(api, spec("true", dependencies=["first"]))
    never = submitted(api, spec("true", dependencies=[f"failed:{first}"]))
    assert await_state(api, second)["state"] == "COMPLETED"
    done, after = api.job(first), api.job(second)
    assert done["ended_at"] <= after["started_at"]
    # Slurm cancels a job whose dependency can't come true any more.
    assert await_state(api, never)["state"] == "CANCELLED"


def test_what_slurm_refuses_is_told_in_its_words(api: Client) -> None:
    asked = spec("true", resources={"reservation": "golden"})
    with pytest.raises(RefusedError, match="reservation") as raised:
        api.submit(asked, wait=60)
    assert raised.value.job_id is not None
    assert api.job(raised.value.job_id)["state"] == "FAILED"
    with pytest.raises(RefusedError, match="reservation"):
        api.dry_run(asked)


def test_what_admission_refuses_is_no_job(api: Client) -> None:
    with pytest.raises(RefusedError, match="qos: There is no QOS golden") as raised:
        api.submit(spec("true", resources={"qos": "golden"}), wait=60)
    assert raised.value.job_id is None


def test_a_twin_of_the_chosen_job_does_no_work(api: Client, cluster: Cluster) -> None:
    asked = spec("echo worked", sbatch={"begin": "now+7days"})
    job = api.submit(asked, wait=60)
    folder = Path(job["folder"])
    key = f"hpc-{job['id']}-1-0"
    (folder / f"chosen-{key}").write_text("999999\n")
    number = job["slurm_job_id"]
    assert cluster.run("scontrol", "update", f"jobid={number}", "StartTime=now").ok
    assert await_state(api, job["id"])["state"] == "FAILED"
    told = api.logs(job["id"], batch=True)
    assert "Slurm job 999999 does this work; this one is its twin" in told
    assert not (folder / "logs" / "attempt-1" / "rank-0.log").exists()


def test_a_dead_node_is_an_attempt_that_failed_and_the_job_goes_on(
    fresh_cluster: Callable[..., Cluster], on: Callable[[Cluster], Client]
) -> None:
    cluster = fresh_cluster(spares=0)
    api = on(cluster)
    job_id = submitted(api, spec("sleep 600", recovery={"requeue": True}))
    first = await_attempt(api, job_id, 1)
    [node] = first["nodes"]
    cluster.kill_node(node)
    down = (f"nodename={node}", "state=down", "reason=killed")
    assert cluster.run("scontrol", "update", *down).ok
    await_state(api, job_id, "PENDING")
    number = api.job(job_id)["slurm_job_id"]
    assert cluster.run("scontrol", "update", f"jobid={number}", "StartTime=now+2").ok
    second = await_attempt(api, job_id, 2)
    assert second["nodes"] != [node]
    deadline = time.monotonic() + 60  # accounting lags
    while api.attempts(job_id)[0]["state"] != "NODE_FAIL":
        assert time.monotonic() < deadline, api.attempts(job_id)
        time.sleep(0.5)
    assert api.attempts(job_id)[0]["reason"] == "A node died."


def _stop(cluster: Cluster, daemon: str) -> None:
    for member in members(cluster.folder.path):
        if member.daemon == daemon:
            member.process.terminate()
            member.process.wait(30)


def test_a_restart_of_slurmctld_changes_nothing_for_a_job(
    fresh_cluster: Callable[..., Cluster], on: Callable[[Cluster], Client]
) -> None:
    cluster = fresh_cluster(spares=0)
    api = on(cluster)
    # Long enough not to end meanwhile: srun would wait for slurmctld for minutes.
    job_id = submitted(api, spec("sleep 30"))
    await_state(api, job_id, "RUNNING")
    _stop(cluster, "slurmctld")
    waiting = str(api.submit(spec("true", name="meanwhile"))["id"])
    time.sleep(3)
    assert api.job(job_id)["state"] == "RUNNING"
    assert not api.ready()["is_ready"]
    layout = cluster.layout
    start_listener(slurmctld(layout), layout.ports.slurmctld, layout, cluster.place)
    assert await_state(api, job_id)["state"] == "COMPLETED"
    assert await_state(api, waiting)["state"] == "COMPLETED"


def test_without_slurmdbd_the_end_comes_from_the_queue_and_that_is_said(
    fresh_cluster: Callable[..., Cluster], on: Callable[[Cluster], Client]
) -> None:
    cluster = fresh_cluster(spares=0)
    api = on(cluster)
    job_id = submitted(api, spec("sleep 3; exit 5"))
    await_state(api, job_id, "RUNNING")
    _stop(cluster, "slurmdbd")
    job = await_state(api, job_id)
    assert (job["state"], job["exit_code"]) == ("FAILED", 5)  # the agent told
    ready = api.ready()
    assert ready["is_ready"]
    assert not ready["accounting"]
    assert ready["detail"]


def test_a_service_of_roots_runs_each_job_as_the_person_who_asked(
    cluster: Cluster, unix_users: tuple[str, ...]
) -> None:
    alice, _ = unix_users
    account = pwd.getpwnam(alice)
    with tempfile.TemporaryDirectory(prefix="hpcplat-runs-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        service = service_on(cluster, f"sqlite:///{name}/own.db", folder)
        app = create_app(service, threads=True)
        transport = EmbeddedTransport(app, account.pw_uid)
        http = httpx.Client(base_url="http://test", transport=transport, timeout=60)
        with Client(http) as api:
            asked = spec(
                'id -un; echo "$TOKEN"; touch made',
                environment={"secrets": {"TOKEN": "env:T"}},
            )
            job = api.submit(asked, secrets={"TOKEN": "s3cret"}, wait=60)
            assert job["user"] == alice
            run = Path(job["folder"])
            assert run.parent.stat().st_uid == 0
            assert run.stat().st_uid == account.pw_uid
            job = await_state(api, job["id"])
            number = str(job["slurm_job_id"])
            told = cluster.run("sacct", "-nXP", "-j", number, "-o", "User")
            assert told.stdout.split() == [alice]
            batch = run / "logs" / "attempt-1" / "batch.log"
            assert batch.stat().st_uid == account.pw_uid
            if not _may_run_python(account):
                return  # it is in root's home, as on some development machines
            assert job["state"] == "COMPLETED", job
            assert api.logs(job["id"]) == f"{alice}\ns3cret\n"
            assert (run / "made").stat().st_uid == account.pw_uid
            assert not (run / "secrets.json").exists()


def _may_run_python(account: pwd.struct_passwd) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import hpcplat"],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0
