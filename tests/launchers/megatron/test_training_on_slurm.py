"""Training on the real Slurm, over several nodes, through the batch script and agents."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcplat import eventlog, processes
from hpcplat.checkpoints.folder import name_of, step_folders
from hpcplat.eventlog import EventKind
from hpcplat.jobs import spec_of
from hpcplat.journal import read
from hpcplat.runfiles import run_files, write_files
from hpcplat.runfolder import RunFolder
from hpcplat.signals import RankExit
from hpcplat.sitepolicy import SitePolicy

pytest.importorskip("megatron.core")
pytestmark = [pytest.mark.slurm, pytest.mark.slow]

PATIENCE = 400.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


class Job:
    """A training job on Slurm: its run folder, and its number at its last submission."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self.folder = RunFolder(folder)
        files = run_files(spec_of(spec), self.folder, SitePolicy(), "key")
        write_files(self.folder, files)
        self.number = ""

    def submit(self) -> Job:
        answer = processes.run(["sbatch", "--parsable", self.folder.script], timeout=30)
        assert answer.ok, answer.stderr
        self.number = answer.stdout.strip().split(";")[0]
        return self

    def show(self, name: str) -> str:
        words = ["scontrol", "-o", "show", "job", self.number]
        answer = processes.run(words, timeout=30)
        found = re.search(rf"(?:^| ){name}=(\S*)", answer.stdout)
        assert found, answer.stdout
        return found[1]

    def start_now(self) -> None:
        """Spare a requeued job the two minutes for which Slurm holds it back."""
        # A time that is over when Slurm looks at it is taken for none at all.
        words = ["scontrol", "update", f"jobid={self.number}", "StartTime=now+2"]
        assert processes.run(words, timeout=30).ok

    def wait(self) -> Job:
        deadline = time.monotonic() + PATIENCE
        while self.show("JobState") not in ENDED:
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.2)
        return self

    def losses(self) -> list[float]:
        found = read(self.folder.journal / "steps.txt")
        return [found[step].entry.loss for step in sorted(found)]

    def told(self) -> str:
        logs = self.folder.logs.glob("attempt-*/*.log")
        return "\n".join(f"== {log}\n{log.read_text()}" for log in sorted(logs))[-6000:]


def until(condition: Callable[[], object], job: Job) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, job.told()
        assert job.show("JobState") not in ENDED[1:], job.told()
        time.sleep(0.2)


def spread(
    train: Any,  # noqa: ANN401 - the fixture's Trainer
    nodes: int,
    tasks: int,
    changes: dict[str, Any],
) -> dict[str, Any]:
    spec: dict[str, Any] = train.spec(1, changes)
    spec["resources"] = {
        "nodes": nodes,
        "tasks_per_node": tasks,
        "memory": "4G",
        "time": "15m",
    }
    return spec


@pytest.mark.parametrize(
    "asked",
    [(2, 2, {"tensor": 2, "pipeline": 2}), (4, 1, {"pipeline": 2})],
    ids=["2 nodes of 2", "4 nodes of 1"],
)
def test_ranks_on_several_nodes_train_as_one_process_does(
    train: Any,  # noqa: ANN401
    one_process: Any,  # noqa: ANN401
    slurm_environment: object,
    tmp_path: Path,
    asked: tuple[int, int, dict[str, int]],
) -> None:
    nodes, tasks, layout = asked
    disk = tmp_path / "disk"
    changes = {"parallelism": layout, "staging": {"folder": str(disk)}}
    spec = spread(train, nodes, tasks, changes)
    job = Job(tmp_path / "run", spec).submit().wait()
    assert job.show("JobState") == "COMPLETED", job.told()
    assert f"read from {disk}" in job.folder.attempt(1).rank_log(0).read_text()
    pairs = zip(job.losses(), one_process({}).losses, strict=True)
    assert max(abs(one - other) for one, other in pairs) <= 1e-5
    places = [path.name for path in step_folders(job.folder.checkpoints)]
    assert places == [name_of(8), name_of(4)]


@pytest.mark.timeout(600)
def test_warned_of_the_time_limit_it_stops_and_its_next_attempt_goes_on(
    train: Any,  # noqa: ANN401
    one_process: Any,  # noqa: ANN401
    slurm_environment: object,
    tmp_path: Path,
) -> None:
    schedule = {"schedule": {"kind": "constant"}}
    settings = {"settings": {"steps": 60, **schedule}}
    changes = {"parallelism": {"pipeline": 2}, **settings}
    spec = spread(train, 2, 1, {**changes, "checkpoint": {"every": 1000}})
    job = Job(tmp_path / "run", spec).submit()
    until(lambda: len(job.losses()) >= 3, job)
    words = ["scancel", "--signal=USR2", "--batch", job.number]
    assert processes.run(words, timeout=30).ok
    until(lambda: job.show("Restarts") == "1", job)
    until(lambda: job.show("JobState") == "PENDING", job)
    job.start_now()
    job.wait()
    assert job.show("JobState") == "COMPLETED", job.told()

    events = eventlog.read(job.folder.events)[0]
    ends = [e.details["code"] for e in events if e.kind == EventKind.ATTEMPT_ENDED]
    assert ends == [RankExit.STOPPED_EARLY, 0]
    stopped = next(e for e in events if e.kind == "training-stopped").details["step"]
    resumed = next(e for e in events if e.kind == "resumed").details["step"]
    assert 3 <= stopped == resumed < 60
    reference = one_process({"settings": {"steps": 60, **schedule}}).losses
    pairs = zip(job.losses(), reference, strict=True)
    assert max(abs(one - other) for one, other in pairs) <= 1e-5
