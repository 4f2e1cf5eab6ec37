"""Training on a Slurm whose nodes may be killed, and what to hold it against."""

from __future__ import annotations

import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpcplat import eventlog, processes
from hpcplat.checkpoints.folder import Checkpoint, newest_whole
from hpcplat.cli.main import main as hpcplat
from hpcplat.cluster import Cluster, ClusterSpec, up
from hpcplat.eventlog import RunEvent
from hpcplat.jobs import JobSpec, spec_of
from hpcplat.journal import read
from hpcplat.runfiles import run_files, write_files
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
PATIENCE = 180.0
STEPS = 30
WORDS = ["the", "node", "died", "and", "came", "back", "with", "its", "state", "."]


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds; fail with what was waited for."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {PATIENCE:g} s in vain for {what}")
        time.sleep(0.02)


@dataclass(frozen=True)
class Job:
    """A training job that was submitted."""

    cluster: Cluster
    job_id: str
    folder: RunFolder

    @property
    def events(self) -> list[RunEvent]:
        """Return all events so far."""
        return list(eventlog.read(self.folder.events)[0])

    def kinds(self, kind: str) -> list[RunEvent]:
        """Return the events of one kind."""
        return [event for event in self.events if event.kind == kind]

    @property
    def step(self) -> int:
        """Return the newest step in the journal."""
        return max(self.steps, default=0)

    @property
    def steps(self) -> dict[int, float]:
        """Return each step's loss."""
        known = read(self.folder.journal / "steps.txt")
        return {step: found.entry.loss for step, found in known.items()}

    @property
    def samples(self) -> dict[int, str]:
        """Return the hash of each step's samples, the same in every layout."""
        known = read(self.folder.journal / "steps.txt")
        return {step: found.entry.samples for step, found in known.items()}

    @property
    def lines(self) -> int:
        """Return how many steps were run, those that were run again included."""
        text = (self.folder.journal / "steps.txt").read_text()
        return sum(line[:1].isdecimal() for line in text.splitlines())

    @property
    def final(self) -> Checkpoint:
        """Return the last checkpoint."""
        return self.newest(self.folder.checkpoints)

    def newest(self, folder: Path) -> Checkpoint:
        """Return the newest checkpoint of a folder."""
        found, _ = newest_whole(folder)
        assert found is not None
        return found

    @property
    def nodes(self) -> list[str]:
        """Return the nodes that work, by node rank."""
        return list(self.kinds("ranks-started")[-1].details["nodes"])

    def processes(self, mark: str) -> list[psutil.Process]:
        """Return this job's processes with a mark in their words."""
        found = psutil.process_iter(["cmdline"])
        lines = ((p, " ".join(p.info["cmdline"] or ())) for p in found)
        root = str(self.folder.root)
        return [p for p, line in lines if mark in line and root in line]

    def rank(self, number: int) -> psutil.Process:
        """Return the process of a rank: it alone has its number in its environment."""
        for process in psutil.process_iter():
            try:
                log = Path(f"/proc/{process.pid}/fd/1").readlink()
            except OSError:
                continue
            leads = os.getsid(process.pid) == process.pid
            if leads and log.name == f"rank-{number}.log" and self._owns(log):
                return process
        pytest.fail(f"rank {number} does not run")

    def _owns(self, log: Path) -> bool:
        return log.is_relative_to(self.folder.logs)

    def until_step(self, step: int) -> None:
        """Wait until a step is done."""
        until(lambda: self.step >= step or self.state() in ENDED, f"step {step}")

    def show(self) -> dict[str, str]:
        """Return ``scontrol show job`` as names and values."""
        answer = self.cluster.run("scontrol", "-o", "show", "job", self.job_id)
        return dict(re.findall(r"(\S+?)=(\S*)", answer.stdout))

    def state(self) -> str:
        """Return Slurm's word."""
        return self.show()["JobState"]

    def wait(self) -> Job:
        """Wait for the end."""
        until(lambda: self.state() in ENDED, f"the end of job {self.job_id}")
        return self

    def log(self, rank: int = 0) -> str:
        """Return what a rank wrote in the newest attempt."""
        attempt = self.folder.attempts()[-1]
        return self.folder.attempt(attempt).rank_log(rank).read_text(errors="replace")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """A cluster whose nodes may be killed; each test revives what it killed."""
    name = f"test-{os.getpid()}-recovery"
    folder = Path(tempfile.gettempdir()) / f"hpcplat-{name}"
    running = up(
        ClusterSpec(name=name, folder=folder, settings={"SlurmdTimeout": "10"})
    )
    with pytest.MonkeyPatch.context() as patch:
        for key in [key for key in os.environ if key.startswith(("SLURM", "SBATCH"))]:
            patch.delenv(key)
        for key, value in running.environment().items():
            patch.setenv(key, value)
        yield running
    running.down()


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A tiny dataset: name@version, and the root where it is."""
    source, root = tmp_path_factory.mktemp("text"), tmp_path_factory.mktemp("data")
    random.seed(1)
    for number in range(12):
        lines = (" ".join(random.choices(WORDS, k=9)) for _ in range(400))
        (source / f"{number}.txt").write_text("\n".join(lines))
    words = ["data", "ingest", "--text", str(source), "--name", "tiny"]
    words += ["--root", str(root), "--split", "validation=0.1", "--processes", "1"]
    assert hpcplat(words) == 0
    version = next((root / "tiny" / "versions").iterdir())
    return f"tiny@{version.name[:12]}", root


Submit = Callable[..., Job]


@pytest.fixture
def submit(nodes: Cluster, text: tuple[str, Path], tmp_path: Path) -> Iterator[Submit]:
    """Submit a training of tensor 2 x pipeline 2 on two nodes and a spare."""
    yield Submitter(nodes, text, tmp_path)
    processes.run(["scancel", "--name=recovery"], timeout=20)
    for node in nodes.spec.nodes:
        nodes.revive_node(node.name)


@dataclass(frozen=True)
class Submitter:
    """Submits trainings, each in a folder of its own."""

    cluster: Cluster
    text: tuple[str, Path]
    root: Path

    def spec(self, **fields: Any) -> JobSpec:  # noqa: ANN401 - the spec checks them
        dataset, root = self.text
        resources = {"nodes": 2, "tasks_per_node": 2, "spare_nodes": 1, "time": "9m"}
        resources |= {"memory": "2G"} | fields.pop("resources", {})
        settings: dict[str, Any] = {
            "data": {"root": str(root), "sequence_length": 32},
            "batch": {"global_size": 8, "micro_size": 1},
            "steps": STEPS,
            "optimizer": {"learning_rate": 0.003},
            "model": {
                "vocab_size": 512,
                "hidden_dropout": 0.1,
                "attention_dropout": 0.1,
            },
        }
        layout = fields.pop("parallelism", {"tensor": 2, "pipeline": 2})
        return spec_of(
            {
                "name": "recovery",
                "kind": "train",
                "preset": "gpt-tiny",
                "data": dataset,
                "resources": resources,
                "parallelism": layout,
                "checkpoint": fields.pop("checkpoint", {"every": 10}),
                "environment": {"variables": {"OMP_NUM_THREADS": "1"}},
                "settings": settings | fields.pop("settings", {}),
                **fields,
            }
        )

    def __call__(self, **fields: Any) -> Job:  # noqa: ANN401 - as above
        folder = RunFolder(self.root / f"run-{time.time_ns()}")
        spec = self.spec(**fields)
        write_files(folder, run_files(spec, folder, SitePolicy(), folder.root.name))
        answer = self.cluster.run("sbatch", "--parsable", str(folder.script))
        assert answer.ok, answer.stderr
        return Job(self.cluster, answer.stdout.strip(), folder)


@pytest.fixture(scope="module")
def undisturbed(
    nodes: Cluster, text: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Job:
    """The same training, left alone."""
    submit = Submitter(nodes, text, tmp_path_factory.mktemp("undisturbed"))
    job = submit(resources={"spare_nodes": 0}).wait()
    assert job.state() == "COMPLETED", job.log()
    return job
