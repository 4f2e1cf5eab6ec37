"""`hpcplat demo`: a Slurm on this machine, and a GPU job over two of its nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hpcplat import cluster
from hpcplat.cluster import Cluster, ClusterSpec
from hpcplat.errors import ConflictError, UnavailableError
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import Submission
from hpcplat.slurm.states import BaseState, JobState, has_ended

app = typer.Typer()

# Seconds that the job may take, from its submission to its end.
PATIENCE = 120.0
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=demo
#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --time=5
#SBATCH --no-requeue
#SBATCH --output={output}
srun --gpus-per-task=1 bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS\\
 on $SLURMD_NODENAME: CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"'
"""


@app.command()
def demo(
    *,
    take_down: Annotated[
        bool, typer.Option("--down", help="Take the demo's cluster down again.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where all of it lies.", show_default=False)
    ] = None,
) -> None:
    """Start a Slurm on this machine and run a GPU job over two of its nodes.

    The cluster stays up for you to try; Ctrl-C takes all of it down.
    """
    spec = ClusterSpec(name="demo", folder=folder or Path())
    if take_down:
        was_there = cluster.down(spec.folder)
        print("The demo is gone." if was_there else "No demo was there.")
        return
    try:
        _show(spec, "" if folder is None else f" --folder {folder}")
    except BaseException:  # Ctrl-C or an error: a demo leaves nothing behind
        cluster.down(spec.folder)
        raise


def _show(spec: ClusterSpec, options: str) -> None:
    with Console(stderr=True).status("Starting a Slurm on this machine (10 s) …"):
        running = _bring_up(spec)
    major, minor = running.layout.version
    print(
        f"Slurm {major}.{minor:02} is up: {len(spec.nodes)} nodes of "
        f"{spec.nodes[0].gpus} GPUs, the last one a spare."
    )
    state = _run(running)
    print(f"The job is {state}.")
    if state.base is not BaseState.COMPLETED:
        raise UnavailableError(
            "The demo's job did not complete.", f"See {running.folder.logs}."
        )
    print(
        "\nThe cluster is yours to try:\n"
        f'  eval "$(hpcplat cluster env{options or " --name demo"})"\n'
        "  sinfo\n"
        f"  hpcplat cluster kill-node n2{options or ' --name demo'}\n"
        f"  hpcplat demo --down{options}"
    )


def _bring_up(spec: ClusterSpec) -> Cluster:
    try:
        return cluster.up(spec)
    except ConflictError:  # what is left of an earlier demo, after a reboot, say
        cluster.down(spec.folder)
        return cluster.up(spec)


def _run(running: Cluster) -> JobState:
    folder = running.folder.path / "demo"
    folder.mkdir(exist_ok=True)
    output = folder / "%j.out"
    environ = {**os.environ, **running.environment()}
    slurm = CommandLine(running.folder.slurm_conf, environ=environ)
    script = SCRIPT.format(output=output)
    job = slurm.submit(Submission(script, str(folder))).job_id
    print(f"Job {job} was submitted: 2 nodes, 2 ranks and 2 GPUs on each.")
    state = _wait(slurm, job)
    for line in sorted(_lines(folder / f"{job}.out")):
        print(f"  {line}")
    return state


def _wait(slurm: CommandLine, job_id: int) -> JobState:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for job in slurm.jobs(finished=True):
            if job.job_id == job_id and has_ended(job.state):
                return job.state
        time.sleep(0.2)
    raise UnavailableError(
        f"The demo's job has not ended within {PATIENCE:g} s.",
        "Try again when the machine has less to do.",
    )


def _lines(output: Path) -> Iterator[str]:
    if output.exists():
        yield from output.read_text(errors="replace").splitlines()
