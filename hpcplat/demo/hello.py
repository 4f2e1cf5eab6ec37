"""The first act: a GPU job over two nodes, by sbatch and srun alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hpcplat.cluster import Cluster
from hpcplat.errors import UnavailableError
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import Submission
from hpcplat.slurm.states import BaseState, JobState, has_ended

# Seconds that the job may take, from its submission to its end.
PATIENCE: Final = 120.0
SCRIPT: Final = """\
#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --time=5
#SBATCH --no-requeue
#SBATCH --output={output}
srun --gpus-per-task=1 bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS\\
 on $SLURMD_NODENAME: CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"'
"""


def run(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Submit the job, and yield what its ranks said; UnavailableError if it failed."""
    environ = {**os.environ, **cluster.environment()}
    slurm = CommandLine(cluster.folder.slurm_conf, environ=environ)
    script = SCRIPT.format(output=folder / "hello-%j.out")
    job = slurm.submit(Submission(script, str(folder))).job_id
    yield f"Job {job}: 2 nodes, 2 ranks and 2 GPUs on each."
    state = _wait(slurm, job)
    yield from sorted(_lines(folder / f"hello-{job}.out"))
    yield f"The job is {state}."
    if state.base is not BaseState.COMPLETED:
        raise UnavailableError(
            "The demo's first job did not complete.", f"See {cluster.folder.logs}."
        )


def _wait(slurm: CommandLine, job_id: int) -> JobState:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for job in slurm.jobs(finished=True):
            if job.job_id == job_id and has_ended(job.state):
                return job.state
        time.sleep(0.2)
    raise UnavailableError(
        f"The demo's first job has not ended within {PATIENCE:g} s.",
        "Try again when the machine has less to do.",
    )


def _lines(output: Path) -> Iterator[str]:
    if output.exists():
        yield from output.read_text(errors="replace").splitlines()
