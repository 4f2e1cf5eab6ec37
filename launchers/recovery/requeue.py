"""Puts our own job back into Slurm's queue: any user may do so with a job of theirs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping


def address(environ: Mapping[str, str]) -> str:
    """Return how Slurm names this job: a task of an array by the array and its index."""
    array = environ.get("SLURM_ARRAY_JOB_ID")
    if array is not None:
        return f"{array}_{environ.get('SLURM_ARRAY_TASK_ID', '0')}"
    return environ.get("SLURM_JOB_ID", "0")


def requeue(job: str) -> None:
    """Ask Slurm; it then ends us. A refusal shows by our still being there."""
    subprocess.Popen(
        ["scontrol", "requeue", job], stdin=subprocess.DEVNULL, start_new_session=True
    )
