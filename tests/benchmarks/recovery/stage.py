"""What the benchmarks of recovery stand on: a cluster, a dataset, trainings, deaths."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from hpcplat.runfiles import run_files, write_files
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy

WORDS = ["the", "node", "died", "and", "came", "back", "with", "its", "state", "."]
FOREVER = 1_000_000
SLURMD_TIMEOUT = 10  # seconds; Slurm's default is 300, which only makes others slower


@dataclass(frozen=True)
class Stage:
    """A cluster of its own, a folder, and a dataset's name."""

    cluster: Cluster
    root: Path
    dataset: str

    def spec(self, spares: int, memory: int, **settings: Any) -> JobSpec:  # noqa: ANN401
        """Return a training of tensor 2 x pipeline 2 on two nodes."""
        return spec_of(
            {
                "name": "kills",
                "kind": "train",
                "preset": "gpt-tiny",
                "data": self.dataset,
                "resources": {
                    "nodes": 2,
                    "tasks_per_node": 2,
                    "spare_nodes": spares,
                    "time": "60m",
                    "memory": "2G",
                },
                "parallelism": {"tensor": 2, "pipeline": 2},
                "checkpoint": {"every": 20},
                "recovery": {"memory_copies_every": memory},
                "environment": {"variables": {"OMP_NUM_THREADS": "1"}},
                "settings": {
                    "data": {"root": str(self.root / "data"), "sequence_length": 32},
                    "batch": {"global_size": 8, "micro_size": 1},
                    "steps": FOREVER,
                    "model": {"vocab_size": 512},
                }
                | settings,
            }
        )

    def files(self, spec: JobSpec) -> RunFolder:
        """Write a run folder, and return it."""
        folder = RunFolder(self.root / f"run-{time.time_ns()}")
        write_files(folder, run_files(spec, folder, SitePolicy(), folder.root.name))
        return folder

    def submit(self, spec: JobSpec) -> Run:
        """Submit a training."""
        folder = self.files(spec)
        return Run(self, self.sbatch(folder.script), folder)

    def sbatch(self, script: Path) -> str:
        """Submit a script; its job's number."""
        answer = self.cluster.run("sbatch", "--parsable", str(script))
        if not answer.ok:
            sys.exit(answer.stderr)
        return answer.stdout.strip()

    def kill(self, node: str) -> float:
        """End all of a node's processes at one moment; returns when (Unix seconds)."""
        found = self.processes(node)
        when = time.time()
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.cluster.kill_node(node)  # what was born in between
        return when

    def processes(self, node: str) -> list[psutil.Process]:
        """Return all processes of a node."""
        every = members(self.cluster.folder.path)
        return [member.process for member in every if member.node == node]

    def recover(self) -> None:
        """Bring every node back, and wait until all are idle.

        Slurm lets go of the dead at once when it is told that they are.
        """
        for node in self.cluster.spec.nodes:
            if not any(map(_is_slurmd, self.processes(node.name))):
                words = ("update", f"nodename={node.name}", "state=down", "reason=x")
                self.cluster.run("scontrol", *words)
        for node in self.cluster.spec.nodes:
            self.cluster.revive_node(node.name)
        wanted = len(self.cluster.spec.nodes)
        until(lambda: self._idle() == wanted, "idle nodes")

    def _idle(self) -> int:
        answer = self.cluster.run("sinfo", "-h", "-N", "-o", "%T")
        return answer.stdout.split().count("idle")


@dataclass(frozen=True)
class Run:
    """A training that was submitted."""

    stage: Stage
    job: str
    folder: RunFolder

    def events(self, *kinds: str) -> list[RunEvent]:
        """Return all events so far, of some kinds if given."""
        found, _ = eventlog.read_all(self.folder.events)
        return [event for event in found if not kinds or event.kind in kinds]

    @property
    def step(self) -> int:
        """Return the newest step in the journal."""
        return max(read(self.folder.journal / "steps.txt"), default=0)

    @property
    def lines(self) -> int:
        """Return how many steps were made, those made again included."""
        path = self.folder.journal / "steps.txt"
        if not path.exists():
            return 0
        return sum(line[:1].isdecimal() for line in path.read_text().splitlines())

    @property
    def nodes(self) -> list[str]:
        """Return the nodes that work, by node rank."""
        return list(self.events(EventKind.RANKS_STARTED)[-1].details["nodes"])

    def until_steps(self, more: int, patience: float = 240.0) -> None:
        """Wait until so many more steps are done."""
        goal = self.step + more
        until(lambda: self.step >= goal, "steps", patience)

    def cancel(self) -> None:
        """End it."""
        self.stage.cluster.run("scancel", self.job)

    def hosts(self) -> list[str]:
        """Return Slurm's nodes of the job, the batch host first."""
        run = self.stage.cluster.run
        nodes = run("squeue", "-h", "-j", self.job, "-o", "%N").stdout.strip()
        return run("scontrol", "show", "hostnames", nodes).stdout.split()


@contextmanager
def stage(nodes: int) -> Iterator[Stage]:
    """Set a cluster up, make a dataset, and take all down at the end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    root = Path(tempfile.mkdtemp(prefix="hpcplat-kills-"))
    dataset = _dataset(root)
    root.chmod(0o755)
    cluster = up(
        ClusterSpec(
            name=f"kills-{os.getpid()}",
            folder=root / "cluster",
            groups=(NodeGroup(nodes),),
            spares=0,
            settings={"SlurmdTimeout": str(SLURMD_TIMEOUT)},
        )
    )
    os.environ.update(cluster.environment())
    try:
        yield Stage(cluster, root, dataset)
    finally:
        cluster.down()
        shutil.rmtree(root, ignore_errors=True)  # ranks may still write their last


def until(condition: Callable[[], Any], what: str, patience: float = 240.0) -> None:
    """Wait until a condition holds, or end the program."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"waited {patience:g} s in vain for {what}")
        time.sleep(0.02)


def _is_slurmd(process: psutil.Process) -> bool:
    try:
        return process.name() == "slurmd"
    except psutil.NoSuchProcess:
        return False


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
