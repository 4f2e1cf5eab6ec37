"""A submitit executor: the same Python functions, submitted and watched by hpcplat.

``HpcplatExecutor`` takes the place of submitit's ``SlurmExecutor`` or
``AutoExecutor``. Pickling, jobs and checkpointing are submitit's own; sbatch runs
through hpcplat (so jobs are tracked), and states come from one question to Slurm for
all jobs of the process, never more than two seconds old.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from submitit.core import core, logger
from submitit.core.utils import DelayedSubmission, JobPaths
from submitit.slurm.slurm import SlurmExecutor, SlurmInfoWatcher, SlurmJob

from hpcplat.errors import HpcplatError
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.states import JobState, has_ended, may_come_back

R = TypeVar("R")

FRESH: Final = 2.0  # seconds that an answer of Slurm's is believed
COMEBACK: Final = 30.0  # seconds in which a requeue after NODE_FAIL shows itself
LOST: Final = 120.0  # seconds after which a job that nobody knows is given up
DEFAULT_ARRAY_SIZE: Final = 1001  # Slurm's own MaxArraySize

SUBMIT: Final = (sys.executable, "-I", "-m", "hpcplat.cli.main", "sbatch")


class StateWatcher(SlurmInfoWatcher):
    """The states of all jobs of this process, by one squeue for all of them.

    Only jobs that squeue has forgotten (MinJobAge) are looked up in accounting, all
    of them in one question too.
    """

    def __init__(self) -> None:
        super().__init__(delay_s=int(FRESH))
        self._known: dict[str, JobState] = {}
        self._registered_at: dict[str, float] = {}
        self._away_since: dict[str, float] = {}

    def register_job(self, job_id: str) -> None:
        """Watch a job too; asked again at once, as submitit does."""
        super().register_job(job_id)
        self._registered_at.setdefault(job_id, time.time())

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return Slurm's word for the job's state; UNKNOWN before Slurm shows it."""
        return str(self.get_info(job_id, mode).get("State", "UNKNOWN"))

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Tell whether the job is over: ended, and not about to be requeued."""
        if self.get_state(job_id, mode) == "LOST":
            return True
        state = self._known.get(job_id)
        if state is None or not has_ended(state):
            return False
        away = time.time() - self._away_since.setdefault(job_id, time.time())
        return not may_come_back(state) or away > COMEBACK

    def update_if_long_enough(self, mode: str) -> None:
        """Ask Slurm, unless the answer is still fresh or nobody wants it."""
        age = time.time() - self._last_status_check
        if mode != "cache" and age > (0.001 if mode == "force" else FRESH):
            self.update()

    def update(self) -> None:
        """Ask Slurm for all jobs that are not over."""
        open_jobs = self._registered - self._finished
        if not open_jobs:
            return
        self._num_calls += 1
        try:
            found = self._asked(open_jobs)
        except HpcplatError as error:  # Slurm is away: the last states stay
            logger.get_logger().warning(f"hpcplat: {error}")
            return
        finally:
            self._last_status_check = time.time()
        self._take_in(open_jobs, found)
        self._finished |= {job for job in open_jobs if self.is_done(job, "cache")}

    def clear(self) -> None:
        """Forget everything but which jobs there are."""
        super().clear()
        self._known.clear()
        self._away_since.clear()

    def _take_in(self, jobs: set[str], found: dict[str, tuple[JobState, str]]) -> None:
        for job in jobs & found.keys():
            state, nodes = found[job]
            self._known[job] = state
            if not has_ended(state):
                self._away_since.pop(job, None)
            self._info_dict[job] = {
                "JobID": job,
                "State": str(state.base),
                "NodeList": nodes,
            }
        for job in jobs - found.keys():
            if time.time() - self._registered_at[job] > LOST:
                self._info_dict.setdefault(job, {"JobID": job, "State": "LOST"})

    def _asked(self, jobs: set[str]) -> dict[str, tuple[JobState, str]]:
        """Return state and nodes of those that Slurm knows, by submitit's job id."""
        slurm = CommandLine(environ=os.environ)
        found: dict[str, tuple[JobState, str]] = {}
        for live in slurm.jobs(finished=True):
            for name in _names(live.address, live.array_job_id, live.array_task_id):
                found[name] = (live.state, ",".join(live.nodes))
        missing = sorted(jobs - found.keys())
        if missing:
            earliest = min(self._registered_at[job] for job in missing)
            since = datetime.fromtimestamp(earliest, UTC) - timedelta(hours=1)
            ids = sorted({int(job.split("_")[0]) for job in missing})
            for past in slurm.history(since, ids):  # oldest first: the newest stays
                found[past.address] = (past.state, ",".join(past.nodes))
        return found


def _names(address: str, array: int | None, task: int | None) -> Iterator[str]:
    """Yield the ids of a record of squeue's; ``7_[3-5,8%2]`` stands for four tasks."""
    if array is not None and task is not None:
        yield f"{array}_{task}"
        return
    job, bracket, tasks = address.partition("_[")
    if not bracket:
        yield address
        return
    for part in tasks.rstrip("]").split("%")[0].split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        for index in range(int(first), int(last or first) + 1, int(step or 1)):
            yield f"{job}_{index}"


def _own_folder(folder: Path, parameters: Mapping[str, Any]) -> list[str]:
    """Return the lines of a batch script that make the job's folder and log there."""
    paths = JobPaths(folder=folder)

    def spelled(path: Path) -> str:
        parts = str(path).replace("%t", "0").split("%j")
        return '"$submitit_id"'.join(map(shlex.quote, parts))

    err = paths.stdout if parameters.get("stderr_to_stdout") else paths.stderr
    return [
        "submitit_id=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}",
        'submitit_id="$submitit_id${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"',
        f"mkdir -p {spelled(paths.folder)}",
        f"exec >>{spelled(paths.stdout)} 2>>{spelled(err)}",
    ]


class HpcplatJob(SlurmJob[R]):
    """A submitit job whose state comes from hpcplat's watcher."""

    watcher = StateWatcher()


class HpcplatExecutor(SlurmExecutor):
    """Submit Python functions to Slurm, tracked by hpcplat.

    Parameters are those of ``submitit.SlurmExecutor``; ``update_parameters`` takes
    its names, AutoExecutor's general ones (``timeout_min``, ``mem_gb``, ``name`` …)
    and AutoExecutor's ``slurm_*`` ones.
    """

    job_class = HpcplatJob

    @classmethod
    def affinity(cls) -> int:
        """Return how gladly AutoExecutor takes it: only when it is asked for."""
        return min(1, super().affinity())

    def update_parameters(self, **kwargs: Any) -> None:  # noqa: ANN401 - submitit's
        """Set parameters, by any of submitit's names for them."""
        plain = {name.removeprefix("slurm_"): value for name, value in kwargs.items()}
        general = {k: v for k, v in plain.items() if k in self._equivalence_dict()}
        own = {k: v for k, v in plain.items() if k not in general}
        super().update_parameters(**self._convert_parameters(general), **own)

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        """Return the batch script; it makes the job's folder before it writes there.

        The folder bears the job's number, so it can't be made before sbatch; and Slurm,
        if it starts the job at once, fails a job whose output it can't open.
        """
        before = self.parameters
        given = before.get("additional_parameters") or {}
        setup = [*_own_folder(self.folder, before), *(before.get("setup") or [])]
        nowhere = {"output": "/dev/null", "error": "/dev/null"}
        self.parameters = {
            **before,
            "setup": setup,
            "additional_parameters": {**nowhere, **given},
        }
        try:
            return str(super()._make_submission_file_text(command, uid))
        finally:
            self.parameters = before

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return [*SUBMIT, str(submission_file_path)]

    def _internal_process_submissions(
        self, delayed_submissions: list[DelayedSubmission]
    ) -> list[core.Job[Any]]:
        if len(delayed_submissions) == 1:
            return list(super()._internal_process_submissions(delayed_submissions))
        size = self._array_size(len(delayed_submissions))
        parts = range(0, len(delayed_submissions), size)
        return [
            job
            for start in parts
            for job in self._submit_array(delayed_submissions[start : start + size])
        ]

    def _submit_array(
        self, submissions: Sequence[DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """Submit functions as the tasks of one job array."""
        pickles = [self._pickled(submission) for submission in submissions]
        with self._array_of(len(pickles)):
            array = self._submit_command(self._submitit_command_str)
        tasks = list(range(array.num_tasks))
        jobs: list[core.Job[Any]] = []
        for index, pickle in enumerate(pickles):
            address = f"{array.job_id}_{index}"
            job: HpcplatJob[Any] = HpcplatJob(self.folder, address, tasks)
            job.paths.move_temporary_file(pickle, "submitted_pickle")
            jobs.append(job)
        return jobs

    def _pickled(self, submission: DelayedSubmission) -> Path:
        """Write a function where its task will find it; returns the file."""
        folder: Path = JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.pkl"
        minutes = self.parameters.get("time", 5)
        submission.set_timeout(minutes, self.max_num_timeout)
        submission.dump(path)
        return path

    @contextmanager
    def _array_of(self, count: int) -> Iterator[None]:
        before = self.parameters
        self.parameters = {**before, "map_count": count}
        try:
            yield
        finally:
            self.parameters = before

    def _array_size(self, count: int) -> int:
        """Return how many tasks one array may have here."""
        if count < DEFAULT_ARRAY_SIZE:
            return count
        config = CommandLine(environ=os.environ).config()
        return max(1, int(config.get("MaxArraySize", DEFAULT_ARRAY_SIZE)) - 1)


__all__ = ["HpcplatExecutor", "HpcplatJob", "StateWatcher"]
