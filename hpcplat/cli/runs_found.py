"""Which run a person means by a job's id, its name, Slurm's number or a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hpcplat.cli.session import find, service
from hpcplat.errors import NotFoundError
from hpcplat.runfolder import RunFolder
from hpcplat.tracking.aimlink import aim_path


class FoundRun(NamedTuple):
    """A run folder, its name, and where it is in the Aim UI if a job was named."""

    folder: Path
    label: str
    aim: str = ""


def found_run(word: str) -> FoundRun:
    """Return the run that ``word`` names; NotFoundError if none is there."""
    path = Path(word)
    if "/" in word or path.is_dir():
        return FoundRun(_checked(path), path.resolve().name)
    with service() as client:
        meant = find(client, word)
    run = RunFolder(Path(meant.job["folder"]))
    folder = run.root if meant.task is None else run.task(meant.task).root
    if not folder.is_dir():
        raise NotFoundError(
            f"The run folder {folder} of job {meant.id} is not to be seen from here.",
            "Use a machine that mounts it, or wait until the job was started.",
        )
    suffix = "" if meant.task is None else f"_{meant.task}"
    aim = aim_path(meant.id + suffix, f"/aim/{meant.job['workspace']}")
    return FoundRun(folder, meant.job["name"] + suffix, aim)


def _checked(path: Path) -> Path:
    run = RunFolder(path)
    if run.metrics.is_dir() or run.spec.is_file():
        return path
    raise NotFoundError(
        f"{path} is no run folder: it has neither {run.spec.name} nor metrics.",
        "Name a job's run folder; `hpcplat show JOB` prints it.",
    )
