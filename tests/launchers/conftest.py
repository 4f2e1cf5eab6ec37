"""Jobs on the real Slurm, from a spec to their end."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpcplat import eventlog, processes
from hpcplat.batchscript import Part
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.jobs import JobSpec, spec_of
from hpcplat.runfiles import run_files, secrets_file, write_files
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
PATIENCE = 60.0


def until(
    condition: Callable[[], object], what: str, patience: float = PATIENCE
) -> None:
    """Wait until a condition holds; fail with ``what`` was waited for."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {patience:g} s in vain for {what}")
        time.sleep(0.05)


@dataclass(frozen=True)
class SlurmJob:
    """A job that was submitted, and what became of it."""

    job_id: str
    folder: RunFolder

    def show(self) -> dict[str, str]:
        """Return ``scontrol show job`` as names and values."""
        answer = processes.run(
            ["scontrol", "-o", "show", "job", self.job_id], timeout=20
        )
        assert answer.ok, answer.stderr
        return dict(re.findall(r"(\S+?)=(\S*)", answer.stdout))

    def state(self) -> str:
        """Return the job's base state."""
        return self.show()["JobState"]

    def wait(self, patience: float = PATIENCE) -> SlurmJob:
        """Wait until the job is over."""
        until(lambda: self.state() in ENDED, f"the end of job {self.job_id}", patience)
        return self

    def exit_code(self) -> int:
        """Return the exit code that Slurm knows."""
        return int(self.show()["ExitCode"].split(":")[0])

    def cancel(self, *options: str) -> None:
        """Cancel the job, or send it a signal."""
        assert processes.run(["scancel", *options, self.job_id], timeout=20).ok

    def events(self, kind: EventKind | None = None) -> list[RunEvent]:
        """Return the events of the run folder, of one kind if given."""
        found, _ = eventlog.read(self.folder.events)
        return [event for event in found if kind in (None, event.kind)]

    def verdict(self) -> dict[str, Any]:
        """Return the details of the attempt's end."""
        return dict(self.events(EventKind.ATTEMPT_ENDED)[-1].details)

    def log(self, rank: int, attempt: int = 1) -> str:
        """Return what a rank wrote, or nothing if it has no log yet."""
        path = self.folder.attempt(attempt).rank_log(rank)
        return path.read_text() if path.exists() else ""

    def processes(self, program: str) -> list[psutil.Process]:
        """Return those of this job that run a program of ours (or any mark)."""
        found = psutil.process_iter(["cmdline"])
        lines = ((p, " ".join(p.info["cmdline"] or ())) for p in found)
        root = str(self.folder.root)
        return [p for p, line in lines if program in line and root in line]

    def until_logged(self, text: str, rank: int = 0, attempt: int = 1) -> None:
        """Wait until a rank has written some text."""
        until(lambda: text in self.log(rank, attempt), f"{text!r} in rank {rank}'s log")


@dataclass(frozen=True)
class Submitter:
    """Submits specs to the session's cluster, each in a run folder of its own."""

    root: Path
    numbers: Iterator[int]

    def __call__(
        self,
        command: str | list[str],
        *,
        secrets: dict[str, str] | None = None,
        part: Part = Part(),  # noqa: B008 - frozen
        **fields: Any,  # noqa: ANN401 - the spec checks them
    ) -> SlurmJob:
        spec = self.spec(command, **fields)
        number = next(self.numbers)
        folder = RunFolder(self.root / f"run %j 'é' #{number}")
        files = run_files(spec, folder, SitePolicy(), f"key-{number}", part)
        write_files(folder, files)
        if secrets is not None:
            write_files(folder, [secrets_file(folder, secrets)])
        answer = processes.run(["sbatch", "--parsable", folder.script], timeout=20)
        assert answer.ok, answer.stderr
        return SlurmJob(answer.stdout.strip(), folder)

    def spec(self, command: str | list[str], **fields: Any) -> JobSpec:  # noqa: ANN401
        """Return a small job's spec."""
        resources = {"memory": "200M", "time": "5m", **fields.pop("resources", {})}
        return spec_of(
            {"name": "test", "command": command, "resources": resources, **fields}
        )


@pytest.fixture
def submit(tmp_path: Path, slurm_environment: dict[str, str]) -> Iterator[Submitter]:
    """Submit jobs to the session's cluster; those that still live are cancelled."""
    yield Submitter(tmp_path, itertools.count(1))
    processes.run(["scancel", "--name=test"], timeout=20)


@pytest.fixture
def submitter() -> Callable[[Path], Submitter]:
    """Submit to whatever cluster the test has turned to, with folders below a path."""
    return lambda root: Submitter(root, itertools.count(1))
