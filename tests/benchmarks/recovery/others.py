"""The same training as most people run it: plain sbatch --requeue, and torchrun."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from hpcplat.runfolder import RunFolder
from tests.benchmarks.recovery.stage import Run, Stage
from tests.benchmarks.recovery.took import Took

EVERY = 20  # steps between checkpoints
BEFORE = 30  # steps before the harm
PATIENCE = 280.0


def requeue(here: Stage, times: int) -> list[Took]:
    """Kill a node of `sbatch --requeue`; once, whatever ``times``: it takes minutes."""
    run = _submit(here, _srun)
    run.until_steps(BEFORE)
    killed = here.kill(run.hosts()[1])
    return _until_new(run, killed)


def torchrun(here: Stage, times: int, *, node: bool) -> list[Took]:
    """Kill a rank or a node under torchrun.

    Its store is on the batch host, which lives. Where a node dies, torchrun on a third
    one begins at that very moment, as if somebody had known. (One that stands by all
    the time, with --nnodes=2, keeps torch 2.13 from ever going on: whoever of the three
    comes last stays in the rendezvous' wait list, and the others restart for it, again
    and again. The store of its agents, which 2.13 has ranks share by default, does so
    too: gloo finds in it where ranks of the last start listened.) Each harm has a job of its own: torchrun ends the job where it does not
    recover, and then nothing is returned.
    """
    found: list[Took] = []
    for _ in range(min(times, 5)):
        run = _submit(here, _torchrun)
        run.until_steps(BEFORE)
        if node:
            killed = here.kill(_busy(run, EXCEPT_BATCH_HOST))
            (run.folder.root / GO).touch()
        else:
            killed = time.time()
            _ranks(run, run.hosts())[-1].kill()
        found += _until_new(run, killed)
        here.recover()
    return found


EXCEPT_BATCH_HOST = slice(1, None)
CONF = "keep_alive_interval=1,keep_alive_max_attempt=2"
GO = "go"  # a file: the third torchrun begins


def _submit(here: Stage, template: Callable[[RunFolder], str]) -> Run:
    folder = here.files(here.spec(0, 0))
    script = here.root / f"plain-{time.time_ns()}.sh"
    script.write_text(template(folder))
    return Run(here, here.sbatch(script), folder)


def _until_new(run: Run, killed: float) -> list[Took]:
    """Wait for a step that was made after the kill; nothing if the job ends instead."""
    lines, end = run.lines, time.monotonic() + PATIENCE
    while run.lines <= lines + 1:
        if time.monotonic() > end or not _lives(run):
            run.cancel()
            return []
        time.sleep(0.05)
    took = time.time() - killed
    run.cancel()
    return [Took(took, 0.0, lines % EVERY)]


def _lives(run: Run) -> bool:
    shown = run.stage.cluster.run("squeue", "-h", "-j", run.job, "-o", "%T").stdout
    return bool(shown.strip())


def _busy(run: Run, part: slice) -> str:
    """Return a node that has ranks, among some of the job's."""
    return next(host for host in run.hosts()[part] if _ranks(run, [host]))


def _ranks(run: Run, hosts: list[str]) -> list[psutil.Process]:
    """Return the processes of ranks on these nodes."""
    spec = str(run.folder.spec)
    found = []
    for host in hosts:
        for process in run.stage.processes(host):
            with contextlib.suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                if spec in words and "torch.distributed.run" not in words:
                    found.append(process)
    return found


def _variables(folder: RunFolder, attempt: str) -> str:
    root = shlex.quote(str(folder.root))
    return (
        "export OMP_NUM_THREADS=1 HPCPLAT_JOB_KEY=plain HPCPLAT_GENERATION=0\n"
        f"export HPCPLAT_RUN_FOLDER={root} HPCPLAT_ATTEMPT={attempt}\n"
    )


def _head(folder: RunFolder, nodes: int, tasks: int) -> str:
    return (
        "#!/bin/bash\n"
        f"#SBATCH --job-name=plain --nodes={nodes} --ntasks-per-node={tasks} --mem=2G\n"
        f"#SBATCH --time=30:00 --output={folder.root}/plain.log --open-mode=append\n"
    )


def _srun(folder: RunFolder) -> str:
    words = shlex.join([sys.executable, "-I", "-m", "launchers.megatron"])
    return (
        _head(folder, 2, 2)
        + "#SBATCH --requeue\n"
        + _variables(folder, "$((1 + ${SLURM_RESTART_COUNT:-0}))")
        + f"""export MASTER_ADDR=127.0.0.1 MASTER_PORT=29876
srun --kill-on-bad-exit=1 bash -c 'export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS \\
  LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE=2 NODE_RANK=$SLURM_NODEID
  exec {words} {shlex.quote(str(folder.spec))}'
"""
    )


def _torchrun(folder: RunFolder) -> str:
    torch = [sys.executable, "-I", "-m", "torch.distributed.run", "--nnodes=2"]
    torch += ["--nproc-per-node=2", "--max-restarts=5", "--rdzv-backend=c10d"]
    torch += ["--rdzv-endpoint=127.0.0.1:29875", "--rdzv-id=bench"]
    # As soon as it can: the monitor looks each 0.1 s, who is silent for 2 s is dead.
    torch += ["--monitor-interval=0.1"]
    torch += [str(Path(__file__).with_name("plainrank.py")), str(folder.spec)]
    waits = f"while [ ! -e {shlex.quote(str(folder.root / GO))} ]; do sleep 0.05; done"
    return (
        _head(folder, 3, 1)
        + "#SBATCH --no-kill --no-requeue\n"
        + _variables(folder, "1")
        + "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n"
        + "srun --no-kill --kill-on-bad-exit=0 --wait=0 bash -c "
        + shlex.quote(
            f"[ $SLURM_NODEID -lt 2 ] || {waits}\n"
            "[ $SLURM_NODEID = 0 ] && host=true || host=false\n"
            f"export PET_RDZV_CONF={CONF},is_host=$host NODE_RANK=$SLURM_NODEID\n"
            f"exec {shlex.join(torch)}"
        )
        + "\n"
    )
