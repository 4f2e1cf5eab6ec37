"""Kills nodes under a training, and prints how soon all ranks do a new step.

    python tests/benchmarks/recovery/kills.py [--kills 10] [--requeue]

A cluster of its own: two nodes work, the others are spares. Each kill ends everything
on one node at once. Beside it, with --requeue: the same training as most people run it,
`sbatch --requeue` with ranks started by srun, which goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from hpcplat import eventlog
from hpcplat.cli.main import main as hpcplat
from hpcplat.cluster import Cluster, ClusterSpec, NodeGroup, up
from hpcplat.cluster.census import members
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.jobs import JobSpec, spec_of
from hpcplat.journal import read
from hpcplat.ledger import Failure, ledger
from hpcplat.runfiles import run_files, write_files
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy

WORDS = ["the", "node", "died", "and", "came", "back", "with", "its", "state", "."]
SPARES = 5
FOREVER = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--requeue", action="store_true")
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="hpcplat-kills-"))
    dataset = _dataset(root)
    spec = ClusterSpec(
        name=f"kills-{os.getpid()}",
        folder=root / "cluster",
        groups=(NodeGroup(2 + SPARES),),
        spares=0,
        settings={"SlurmdTimeout": "10"},
    )
    root.chmod(0o755)
    cluster = up(spec)
    os.environ.update(cluster.environment())
    try:
        rows = [
            ("copies in memory", _kills(cluster, root, dataset, 1, asked.kills)),
            ("checkpoint on disk", _kills(cluster, root, dataset, 0, asked.kills)),
        ]
        if asked.requeue:
            rows.append(("sbatch --requeue", [_requeue(cluster, root, dataset)]))
        print(_table(rows))
    finally:
        cluster.down()


def _dataset(root: Path) -> str:
    source = root / "text"
    source.mkdir()
    random.seed(1)
    for number in range(12):
        lines = (" ".join(random.choices(WORDS, k=9)) for _ in range(400))
        (source / f"{number}.txt").write_text("\n".join(lines))
    words = ["data", "ingest", "--text", str(source), "--name", "tiny"]
    words += ["--root", str(root / "data"), "--split", "validation=0.1"]
    if hpcplat([*words, "--processes", "1"]):
        sys.exit("the dataset could not be made")
    version = next((root / "data" / "tiny" / "versions").iterdir())
    return f"tiny@{version.name[:12]}"


def _spec(root: Path, dataset: str, spares: int, memory: int) -> JobSpec:
    return spec_of(
        {
            "name": "kills",
            "kind": "train",
            "preset": "gpt-tiny",
            "data": dataset,
            "resources": {
                "nodes": 2,
                "tasks_per_node": 2,
                "spare_nodes": spares,
                "time": "30m",
                "memory": "2G",
            },
            "parallelism": {"tensor": 2, "pipeline": 2},
            "checkpoint": {"every": 20},
            "recovery": {"memory_copies_every": memory},
            "environment": {"variables": {"OMP_NUM_THREADS": "1"}},
            "settings": {
                "data": {"root": str(root / "data"), "sequence_length": 32},
                "batch": {"global_size": 8, "micro_size": 1},
                "steps": FOREVER,
                "model": {"vocab_size": 512},
            },
        }
    )


def _kills(
    cluster: Cluster, root: Path, dataset: str, memory: int, wanted: int
) -> list[tuple[float, float, Failure]]:
    """Return (seconds to the first step, usual step, the ledger's line) of each kill."""
    found: list[tuple[float, float, Failure]] = []
    while len(found) < wanted:
        count = min(SPARES, wanted - len(found))
        found += _job(cluster, root, _spec(root, dataset, count, memory), count)
        for node in cluster.spec.nodes:
            cluster.revive_node(node.name)
        _until(lambda: _idle(cluster) == len(cluster.spec.nodes), "idle nodes")
    return found


def _job(
    cluster: Cluster, root: Path, spec: JobSpec, kills: int
) -> list[tuple[float, float, Failure]]:
    folder = RunFolder(root / f"run-{time.time_ns()}")
    write_files(folder, run_files(spec, folder, SitePolicy(), folder.root.name))
    job = cluster.run("sbatch", "--parsable", str(folder.script)).stdout.strip()
    times = []
    for number in range(kills):
        goal = _step(folder) + 12
        _until(lambda goal=goal: _step(folder) >= goal, "steps")  # type: ignore[misc]
        nodes = _events(folder, EventKind.RANKS_STARTED)[-1].details["nodes"]
        killed = _kill(cluster, nodes[1])
        _until(
            lambda n=number: len(_events(folder, EventKind.RECOVERED)) > n,  # type: ignore[misc]
            "a recovery",
        )
        again = _events(folder, EventKind.RECOVERED)[-1]
        times.append(again.details["at"] - killed)
    usual = [e.details["usual"] for e in _events(folder, EventKind.RECOVERING)]
    cluster.run("scancel", job)
    failures = ledger(eventlog.read_all(folder.events)[0], time.time()).failures
    return list(zip(times, usual, failures, strict=True))


def _kill(cluster: Cluster, node: str) -> float:
    """End all of a node's processes at one moment; returns when (Unix seconds)."""
    found = [m.process for m in members(cluster.folder.path) if m.node == node]
    when = time.time()
    for process in found:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    cluster.kill_node(node)  # what was born in between
    return when


def _requeue(
    cluster: Cluster, root: Path, dataset: str
) -> tuple[float, float, Failure]:
    """Do the same with Slurm's own means."""
    folder = RunFolder(root / f"run-{time.time_ns()}")
    spec = _spec(root, dataset, 0, 0)
    write_files(folder, run_files(spec, folder, SitePolicy(), folder.root.name))
    script = root / "requeue.sh"
    script.write_text(_plain(folder))
    job = cluster.run("sbatch", "--parsable", str(script)).stdout.strip()
    _until(lambda: _step(folder) >= 30, "steps")
    last = _lines(folder)
    nodes = cluster.run("squeue", "-h", "-j", job, "-o", "%N").stdout.strip()
    hosts = cluster.run("scontrol", "show", "hostnames", nodes).stdout.split()
    killed = _kill(cluster, hosts[1])
    last = _lines(folder)
    _until(lambda: _lines(folder) > last + 1, "a new step", 400)
    took = time.time() - killed
    cluster.run("scancel", job)
    return took, 0.0, Failure(killed, 1, "requeue", lost_steps=last % 20)


def _plain(folder: RunFolder) -> str:
    words = shlex.join([sys.executable, "-I", "-m", "launchers.megatron"])
    return f"""#!/bin/bash
#SBATCH --job-name=plain --nodes=2 --ntasks-per-node=2 --mem=2G --requeue
#SBATCH --time=30:00 --output={folder.root}/plain.log --open-mode=append
export OMP_NUM_THREADS=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29876
export HPCPLAT_RUN_FOLDER={shlex.quote(str(folder.root))} HPCPLAT_JOB_KEY=plain
export HPCPLAT_GENERATION=0 HPCPLAT_ATTEMPT=$((1 + ${{SLURM_RESTART_COUNT:-0}}))
srun --kill-on-bad-exit=1 bash -c 'export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS \\
  LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE=2 NODE_RANK=$SLURM_NODEID
  exec {words} {shlex.quote(str(folder.spec))}'
"""


def _events(folder: RunFolder, kind: EventKind) -> list[RunEvent]:
    return [e for e in eventlog.read_all(folder.events)[0] if e.kind == kind]


def _step(folder: RunFolder) -> int:
    return max(read(folder.journal / "steps.txt"), default=0)


def _lines(folder: RunFolder) -> int:
    path = folder.journal / "steps.txt"
    return path.read_text().count("\n") if path.exists() else 0


def _idle(cluster: Cluster) -> int:
    return cluster.run("sinfo", "-h", "-N", "-o", "%T").stdout.split().count("idle")


def _until(condition: Callable[[], Any], what: str, patience: float = 240.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"waited {patience:g} s in vain for {what}")
        time.sleep(0.02)


def _table(rows: list[tuple[str, list[tuple[float, float, Failure]]]]) -> str:
    head = (
        "| variant | kills | median s | p95 s | step s | steps redone | detect | stop |"
    )
    lines = [head + " start | first step |", "|---" * 10 + "|"]
    for name, kills in rows:
        times = sorted(took for took, _, _ in kills)
        late = times[min(len(times) - 1, round(0.95 * len(times)))]
        failures = [failure for _, _, failure in kills]
        phases = [
            statistics.median(getattr(failure, phase) for failure in failures)
            for phase in ("detect", "reschedule", "start", "first_step")
        ]
        lost = sum(failure.lost_steps for failure in failures)
        usual = statistics.median(usual for _, usual, _ in kills)
        lines.append(
            f"| {name} | {len(kills)} | {statistics.median(times):.2f} | {late:.2f} |"
            f" {usual:.2f} | {lost} | "
            + " | ".join(f"{phase:.2f}" for phase in phases)
            + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
