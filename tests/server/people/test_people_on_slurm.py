"""Workspaces and quotas on a real Slurm, with real Unix users in two accounts."""

from __future__ import annotations

import os
import pwd
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.cluster import Cluster
from hpcplat.embedding import EmbeddedTransport
from hpcplat.slurm.commandline import CommandLine
from server.app import create_app
from server.database import Database
from server.service import Service
from tests.server.people.conftest import Seen

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Client = Callable[[str], httpx.Client]


@pytest.fixture
def site(
    cluster: Cluster, unix_users: tuple[str, ...], sqlite: Database, tmp_path: Path
) -> Iterator[Client]:
    """The service on the cluster, its workspaces adopted; as each person sees it."""
    scheduler = CommandLine(cluster.folder.slurm_conf, environ=dict(os.environ))
    service = Service(sqlite, scheduler, runs=str(tmp_path / "runs"))
    transport = EmbeddedTransport(create_app(service, threads=False), 0)

    def as_user(name: str) -> httpx.Client:
        seen = Seen(transport, pwd.getpwnam(name).pw_uid)
        return httpx.Client(base_url="http://t/api/v1", transport=seen, timeout=60)

    answer = as_user("root").post("/admin/sync", params={"adopt": True})
    assert answer.status_code == 200, answer.text
    yield as_user
    transport.close()
    for account in ("nlp", "vision"):
        cluster.run(
            *("sacctmgr", "-i", "modify", "account", account, "set"),
            *("GrpTRES=gres/gpu=-1", "GrpJobs=-1", "MaxWall=-1", "Fairshare=1"),
        )
    end_jobs(cluster, unix_users)


def end_jobs(cluster: Cluster, users: tuple[str, ...]) -> None:
    """End what the users have in the queue: a user with a process stays for ever."""
    for user in users:
        cluster.run("scancel", "--full", f"--user={user}")
    for _ in range(100):
        if not cluster.run("squeue", "-h", f"--user={','.join(users)}").stdout:
            return
        time.sleep(0.2)


def job(gpus: int, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    asked = {"nodes": 1, "gpus_per_node": gpus, "time": "5m", "memory": "100M"}
    return {
        "spec": {
            "name": "q",
            "command": ["sleep", "60"],
            "resources": {**asked, **changes},
        }
    }


def sbatch_as(cluster: Cluster, user: str, *options: str) -> str:
    done = cluster.run(
        *(
            "sbatch",
            "--parsable",
            f"--uid={user}",
            "--chdir=/tmp",
            "--output=/dev/null",
        ),
        *("--mem=100M", *options, "--wrap=sleep 60"),
    )
    assert done.ok, done.stderr
    return done.stdout.strip()


def reason_of(cluster: Cluster, job_id: str, wanted: str) -> str:
    reason = ""
    for _ in range(100):
        reason = cluster.run("squeue", "-h", "-j", job_id, "-o", "%r").stdout.strip()
        if reason == wanted:
            break
        time.sleep(0.2)
    return reason


def owner_of(cluster: Cluster, job_id: int) -> list[str]:
    for _ in range(50):
        words = cluster.run(
            *("sacct", "-n", "-X", "-P", "-j", str(job_id), "-o", "User,Account")
        ).stdout.strip()
        if words:
            return words.split("|")
        time.sleep(0.2)
    return []


def test_what_a_site_has_is_adopted_and_agrees(site: Client) -> None:
    names = {w["name"] for w in site("root").get("/workspaces").json()["workspaces"]}
    assert {"lab", "nlp", "vision"} <= names
    members = site("root").get("/workspaces/nlp").json()["members"]
    assert members == [{"user": "alice", "role": "developer"}]
    again = site("root").post("/admin/sync").json()
    assert again["differences"] == []
    assert site("bob").get("/workspaces/nlp").status_code == 404
    assert site("bob").post("/admin/sync").status_code == 403


def test_a_quota_holds_in_slurm_itself_and_in_admission(
    site: Client, cluster: Cluster
) -> None:
    root = site("root")
    put = root.put("/workspaces/nlp/quota", json={"limits": {"gpus": "2"}})
    assert put.status_code == 200, put.text
    # Against plain sbatch, which knows nothing of us.
    over = sbatch_as(cluster, "alice", "--account=nlp", "--gres=gpu:h100:4")
    assert reason_of(cluster, over, "AssocGrpGRES") == "AssocGrpGRES"
    cluster.run("scancel", over)
    # Through us: refused before it waits, with whose limit it is.
    refused = site("alice").post("/jobs", json=job(4))
    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert "account nlp may have 2 GPUs (GrpTRES)" in error["detail"]
    assert error["remedy"] == "Ask for 1 node with 2 GPUs."
    taken = site("alice").post("/jobs", json=job(2), params={"wait": 30})
    assert taken.status_code == 201, taken.text
    assert taken.json()["workspace"] == "nlp"
    assert owner_of(cluster, taken.json()["slurm_job_id"]) == ["alice", "nlp"]
    # Another team's is its own.
    bobs = site("bob").post("/jobs", json=job(4), params={"dry_run": True})
    assert bobs.status_code == 200, bobs.text
    assert bobs.json()["outlook"]["waits_for"] == []


def test_the_qos_of_a_workspace_hold_against_plain_sbatch(
    site: Client, cluster: Cluster
) -> None:
    own = cluster.run(
        *("sacctmgr", "-nP", "show", "assoc", "account=vision", "user=", "format=QOS")
    ).stdout.strip()
    try:
        asked = {"limits": {"qos": "spot,normal"}}
        put = site("root").put("/workspaces/vision/quota", json=asked)
        assert put.status_code == 200, put.text
        as_bob = ("--uid=bob", "--chdir=/tmp", "--account=vision", "--wrap=true")
        refused = cluster.run("sbatch", "--qos=prod", *as_bob)
        assert "qos" in refused.stderr.lower()
        taken = sbatch_as(cluster, "bob", "--account=vision", "--hold")
        shown = cluster.run("squeue", "-h", "-j", taken, "-o", "%q").stdout.strip()
        assert shown == "spot"  # the first that was named
        assert site("root").post("/admin/sync").json()["differences"] == []
    finally:
        back = ("sacctmgr", "-i", "modify", "account", "vision", "set", f"QOS={own}")
        assert cluster.run(*back, "DefaultQOS=normal").ok


def test_drift_is_told_both_ways_and_mended_when_told(
    site: Client, cluster: Cluster
) -> None:
    root = site("root")
    root.put("/workspaces/vision/quota", json={"limits": {"running_jobs": "3"}})
    change = ("sacctmgr", "-i", "modify", "account", "vision", "set", "GrpJobs=7")
    assert cluster.run(*change).ok
    [found] = root.post("/admin/sync").json()["differences"]
    assert (found["ours"], found["slurms"]) == ("3", "7")
    assert found["command"].endswith("set GrpJobs=3")
    [still] = root.post("/admin/sync").json()["differences"]
    assert still == found  # dry unless told
    mended = root.post("/admin/sync", params={"write": True}).json()
    assert mended["left"] == []
    assert root.post("/admin/sync").json()["differences"] == []


def test_what_was_used_is_reported(site: Client, cluster: Cluster) -> None:
    since = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    asked = ("--account=nlp", "--gres=gpu:h100:1", "--time=15")
    ran = sbatch_as(cluster, "alice", *asked)
    for _ in range(100):
        if cluster.run("squeue", "-h", "-j", ran, "-o", "%t").stdout.strip() == "R":
            break
        time.sleep(0.2)
    used: dict[tuple[str, str, str], dict[str, float]] = {}
    for _ in range(100):  # accounting lags: the job is there before its batch step
        rows = site("root").get("/usage", params={"since": since}).json()["rows"]
        used = {(row["workspace"], row["user"], row["project"]): row for row in rows}
        row = used.get(("nlp", "alice", ""), defaultdict(float))
        # With what ran before it, maybe.
        if row["gpu_hours_asked"] >= 0.25 and row["gpu_hours_unknown"] > 0:
            break
        time.sleep(0.2)
    mine = used["nlp", "alice", ""]
    assert 0 < mine["gpu_hours"] < mine["gpu_hours_asked"]
    assert mine["gpu_hours_asked"] >= 0.25  # a GPU for a quarter of an hour
    # A batch script ran, and nobody saw whether on its GPU.
    assert 0 < mine["gpu_hours_unknown"] <= mine["gpu_hours"]
    others = site("bob").get("/usage", params={"since": since}).json()["rows"]
    assert [row for row in others if row["user"] != "bob"] == []
    cluster.run("scancel", ran)


def state_of(cluster: Cluster, job_id: str, wanted: str) -> str:
    state = ""
    for _ in range(200):
        state = cluster.run("squeue", "-h", "-j", job_id, "-o", "%T").stdout.strip()
        if state == wanted:
            break
        time.sleep(0.2)
    return state


def test_a_prod_job_preempts_a_spot_job_which_comes_back(
    cluster: Cluster, unix_users: tuple[str, ...]
) -> None:
    whole = ("--exclusive", "--nodes=5", "--requeue")
    spot = sbatch_as(cluster, "bob", "--account=vision", "--qos=spot", *whole)
    assert state_of(cluster, spot, "RUNNING") == "RUNNING"
    prod = sbatch_as(cluster, "alice", "--account=nlp", "--qos=prod", "--nodes=5")
    try:
        assert state_of(cluster, prod, "RUNNING") == "RUNNING"
        assert state_of(cluster, spot, "PENDING") == "PENDING"
        cluster.run("scancel", prod)
        # Else Slurm lets a requeued job wait for two minutes; but not at once: nodes
        # that have just killed it would refuse to launch it.
        begin = ("scontrol", "update", f"jobid={spot}", "StartTime=now+2")
        assert cluster.run(*begin).ok
        assert state_of(cluster, spot, "RUNNING") == "RUNNING"
    finally:
        end_jobs(cluster, unix_users)


def test_fair_share_orders_the_queue_as_it_is_shown(
    site: Client, cluster: Cluster, unix_users: tuple[str, ...]
) -> None:
    """Who has the larger factor goes first, and `outlook` says the same."""
    for account, share in (("nlp", "1"), ("vision", "9")):
        asked = {"limits": {"share": share}}
        put = site("root").put(f"/workspaces/{account}/quota", json=asked)
        assert put.status_code == 200, put.text
    blocker = sbatch_as(cluster, "alice", "--account=nlp", "--exclusive", "--nodes=5")
    assert state_of(cluster, blocker, "RUNNING") == "RUNNING"
    time.sleep(6)  # usage is counted, and decays, each few seconds
    first = sbatch_as(cluster, "alice", "--account=nlp", "--nodes=5", "--exclusive")
    second = sbatch_as(cluster, "bob", "--account=vision", "--nodes=5", "--exclusive")
    factors: dict[str, float] = {}
    for _ in range(60):
        queue = cluster.run("squeue", "-h", "-t", "PD", "-o", "%i %Q").stdout
        priority = dict(line.split() for line in queue.splitlines())
        shown = site("root").get("/quotas").json()["standings"]
        factors = {u["user"]: u["fair_share"] for s in shown for u in s["users"]}
        apart = int(priority.get(second, 0)) > int(priority.get(first, 0))
        if apart and factors["bob"] > factors["alice"]:
            break
        time.sleep(1)
    assert factors["bob"] > factors["alice"]
    assert int(priority[second]) > int(priority[first])
