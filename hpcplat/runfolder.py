"""The run folder of a job: every name of a file or folder in it, in one class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

OPEN_FOLDER: Final = 0o755
PRIVATE_FILE: Final = 0o600


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a job's files are, on the file system that all of its nodes share.

    A task of a job array has a run folder of its own inside the job's: ``task(3)``.
    """

    root: Path

    @property
    def spec(self) -> Path:
        """What was asked for, as JSON."""
        return self.root / "spec.json"

    @property
    def script(self) -> Path:
        """The batch script, the very bytes that sbatch got."""
        return self.root / "script.sbatch"

    @property
    def plan(self) -> Path:
        """What the agents start on each node (launchplan.LaunchPlan)."""
        return self.root / "plan.json"

    @property
    def command(self) -> Path:
        """The shell script that the spec gave as text."""
        return self.root / "command.sh"

    @property
    def rank_map(self) -> Path:
        """Which rank has which place in the model and on the nodes."""
        return self.root / "rankmap.json"

    @property
    def secrets(self) -> Path:
        """Secret values, readable by the owner only, removed once they were read."""
        return self.root / "secrets.json"

    @property
    def events(self) -> Path:
        """What happened, one JSON object a line (eventlog)."""
        return self.root / "events.jsonl"

    @property
    def beacon(self) -> Path:
        """The sign of life of the attempt that runs (beacon.Beacon)."""
        return self.root / "beacon.json"

    @property
    def logs(self) -> Path:
        """All logs, by attempt."""
        return self.root / "logs"

    @property
    def metrics(self) -> Path:
        """What the ranks logged as metrics."""
        return self.root / "metrics"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints, where the spec names no other folder."""
        return self.root / "checkpoints"

    @property
    def journal(self) -> Path:
        """The step journal: what each step saw and gave, to prove a resume by."""
        return self.root / "journal"

    @property
    def tasks(self) -> Path:
        """The run folders of a job array's tasks."""
        return self.root / "tasks"

    def chosen(self, key: str) -> Path:
        """Which Slurm job is the one of this key, where there could be two."""
        return self.root / f"chosen-{key}"

    def task(self, index: int) -> RunFolder:
        """Return the run folder of one task of a job array."""
        return RunFolder(self.tasks / str(index))

    def attempt(self, number: int) -> AttemptFolder:
        """Return where the logs of an attempt are; attempts count from 1."""
        return AttemptFolder(self.logs / f"attempt-{number}")

    def attempts(self) -> tuple[int, ...]:
        """Return the numbers of the attempts that left logs, in order."""
        names = (path.name for path in self.logs.glob("attempt-*"))
        numbers = (name.removeprefix("attempt-") for name in names)
        return tuple(sorted(int(text) for text in numbers if text.isdecimal()))


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The logs of one attempt, and where its agents meet."""

    root: Path

    @property
    def batch_log(self) -> Path:
        """What the batch script, srun and the agents themselves printed."""
        return self.root / "batch.log"

    @property
    def meeting(self) -> Path:
        """Where the coordinator listens, and the word that opens it (0600)."""
        return self.root / "meeting.json"

    @property
    def exit_code(self) -> Path:
        """The attempt's exit code, written by the coordinator as it leaves."""
        return self.root / "exit-code"

    @property
    def not_staged(self) -> Path:
        """Why the dataset can't be copied to a node: there only if the job must end."""
        return self.root / "not-staged"

    def gpu_tally(self, node: str) -> Path:
        """Return the file of how often a node's GPUs were idle (tracking.gpu_tally)."""
        return self.root / f"gpus-{node}.json"

    def rank_log(self, rank: int) -> Path:
        """Return the file of what a rank printed, output and errors as they came."""
        return self.root / f"rank-{rank}.log"

    def rank_logs(self) -> tuple[tuple[int, Path], ...]:
        """Return (rank, log) of the ranks that have one, by rank."""
        found = (
            (p.stem.removeprefix("rank-"), p) for p in self.root.glob("rank-*.log")
        )
        return tuple(
            sorted((int(rank), path) for rank, path in found if rank.isdecimal())
        )
