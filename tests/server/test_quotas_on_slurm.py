"""Whose limit holds: what Slurm itself does, and what admission says it will do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from hpcplat.cluster import Cluster
from hpcplat.slurm.commandline import CommandLine
from server import quotas
from server.people.idle import Accounting, by_slurm, idle
from server.quotabook import QuotaBook
from server.quotas import Asked
from server.site import Site

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

OWN, PARTS = "own-limits", "parts-limits"  # QOS of the job, and of the partition
GPUS = 20  # in the cluster


@pytest.fixture
def scheduler(cluster: Cluster) -> Iterator[CommandLine]:
    """The cluster with two QOS more; taken back with every limit."""
    account = cluster.spec.account
    for name in (OWN, PARTS):
        change(cluster, "add", "qos", name)
    change(cluster, "modify", "account", account, "set", f"QOS+={OWN}")
    yield CommandLine(cluster.folder.slurm_conf, environ=dict(os.environ))
    cluster.run("scancel", "--full", f"--account={account}", f"--qos={OWN}")
    update_partition(cluster, "")
    unset = ("GrpTRES=gres/gpu=-1", "MaxTRES=gres/gpu=-1")
    change(cluster, "modify", "account", account, "set", *unset, f"QOS-={OWN}")
    change(cluster, "delete", "qos", f"{OWN},{PARTS}")


def change(cluster: Cluster, *words: str) -> None:
    done = cluster.run("sacctmgr", "-i", *words)
    assert done.ok or "Nothing" in done.stdout, done.stdout + done.stderr


def update_partition(cluster: Cluster, qos: str) -> None:
    partition = f"partitionname={cluster.spec.partition}"
    assert cluster.run("scontrol", "update", partition, f"qos={qos}").ok


def verdict(cluster: Cluster) -> str:
    """Return Slurm's reason to let a job of two GPUs wait; empty: it starts."""
    asked = (f"--qos={OWN}", f"--account={cluster.spec.account}", "--gres=gpu:2")
    done = cluster.run(
        *("sbatch", "--parsable", "-o/dev/null", "--mem=100M", "--wrap=sleep 60"),
        *asked,
    )
    assert done.ok, done.stderr
    look = ("squeue", "-h", "-j", done.stdout.strip(), "-o", "%t %r")
    state, reason = "", ""
    for _ in range(150):
        state, reason = cluster.run(*look).stdout.split()
        if state == "R" or reason not in ("None", "Priority"):
            break
        time.sleep(0.2)
    cluster.run("scancel", done.stdout.strip())
    return "" if state == "R" else reason


def foretold(scheduler: CommandLine, cluster: Cluster) -> str:
    """Return whose limit admission finds in the way; the first word."""
    book = QuotaBook(Site(scheduler)).book()
    assert book is not None
    spec = cluster.spec
    asked = Asked("root", spec.account, spec.partition, OWN, gpus=2, gpu_type="h100")
    return " ".join(limit.owner for limit in quotas.met(book, asked))


@pytest.mark.parametrize(
    ("limits", "over_part", "owner", "reason"),
    [
        ({"account": 1, OWN: 4}, False, "", ""),
        ({"account": 4, OWN: 1}, False, f"QOS {OWN}", "QOSGrpGRES"),
        ({"account": 4, OWN: 4, PARTS: 1}, False, f"QOS {PARTS}", "QOSGrpGRES"),
        ({OWN: 4, PARTS: 1}, True, "", ""),
        ({OWN: 1, PARTS: 4}, False, "", ""),
    ],
)
def test_the_first_to_set_a_limit_holds(  # the partition's QOS, the job's, accounts
    scheduler: CommandLine,
    cluster: Cluster,
    limits: dict[str, int],
    over_part: bool,
    owner: str,
    reason: str,
) -> None:
    flags = "OverPartQOS" if over_part else "-1"
    change(cluster, "modify", "qos", OWN, "set", f"Flags={flags}")
    for name, count in limits.items():
        whose = (
            ("account", cluster.spec.account) if name == "account" else ("qos", name)
        )
        change(cluster, "modify", *whose, "set", f"GrpTRES=gres/gpu={count}")
    update_partition(cluster, PARTS if PARTS in limits else "")
    assert foretold(scheduler, cluster) == owner
    assert verdict(cluster) == reason


def test_spent_minutes_of_a_qos_and_an_allocation_without_a_step(
    scheduler: CommandLine, cluster: Cluster
) -> None:
    """Five seconds of all GPUs are more than a minute of one, and all of them idle."""
    change(cluster, "modify", "qos", OWN, "set", "GrpTRESMins=gres/gpu=1")
    since = datetime.now(UTC)
    nodes = len(cluster.spec.nodes)
    held = cluster.run(
        *("salloc", f"--nodes={nodes}", "--gres=gpu:4", "--mem=100M"),
        *(f"--qos={OWN}", f"--account={cluster.spec.account}", "sleep", "5"),
    )
    assert held.ok, held.stderr
    spent: dict[str, int] = {}
    for _ in range(100):
        spent = dict(scheduler.qos_minutes()[OWN])
        if spent["gres/gpu"]:
            break
        time.sleep(0.2)
    assert spent["gres/gpu"] >= 1
    assert "QOS own-limits" in foretold(scheduler, cluster)
    assert verdict(cluster) == "QOSGrpGRESMinutes"
    record = max(
        (job for job in scheduler.history(since - timedelta(seconds=2)) if job.ended),
        key=lambda job: job.allocated.get("gres/gpu", 0),
    )
    assert record.started is not None
    assert record.ended is not None
    hours = GPUS * (record.ended - record.started).total_seconds() / 3600
    site = Accounting(scheduler.version())
    found = idle(record.started, record.ended, GPUS, by_slurm(record, site))
    assert found == pytest.approx((hours, 0.0))
