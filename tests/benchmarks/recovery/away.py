"""Kills slurmctld, then the service, under a training; prints the steps made meanwhile.

    python tests/benchmarks/recovery/away.py [--seconds 15]

Each stays away for a while and comes back. A step that is made again, or an event that
takes something for dead, would be a fault.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from hpcplat.client import Client
from hpcplat.cluster.census import members
from hpcplat.cluster.daemons import slurmctld, start
from hpcplat.embedding import EmbeddedTransport
from hpcplat.eventlog import EventKind
from hpcplat.runfolder import RunFolder
from hpcplat.slurm.commandline import CommandLine
from server.app import create_app
from server.database import Database
from server.service import Service
from tests.benchmarks.recovery.stage import Run, Stage, stage

INTERRUPTIONS = (
    EventKind.NODE_LOST,
    EventKind.RANK_FAILED,
    EventKind.RANK_HANGS,
    EventKind.RECOVERING,
    EventKind.REQUEUE_ASKED,
)
SERVICE = """
import os, sys, time
from pathlib import Path
from hpcplat.slurm.commandline import CommandLine
from server.database import Database
from server.service import Service
conf = Path(os.environ["SLURM_CONF"])
scheduler = CommandLine(conf, environ=dict(os.environ))
service = Service(Database(sys.argv[1]), scheduler, runs=sys.argv[2])
service.start()
time.sleep(1e6)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    asked = parser.parse_args()
    with stage(nodes=2) as here:
        run = _submit(here)
        service = _serve(here)
        run.until_steps(12)
        print("| away | seconds | steps meanwhile | made again | interruptions |")
        print("|---" * 5 + "|")
        controller = _controller(here)
        controller()
        _tell("slurmctld", run, asked.seconds)
        start(slurmctld(here.cluster.layout), here.cluster.layout, here.cluster.place)
        service.kill()
        service.wait()
        _tell("service", run, asked.seconds)
        service = _serve(here)
        _tell("neither", run, asked.seconds)
        service.kill()
        service.wait()
        run.cancel()


def _submit(here: Stage) -> Run:
    """Submit a training, as a command does; the service looks after it."""
    scheduler = CommandLine(here.cluster.folder.slurm_conf, environ=dict(os.environ))
    own = Service(Database(_url(here)), scheduler, runs=str(here.root / "runs"))
    transport = EmbeddedTransport(create_app(own, threads=False), os.geteuid())
    with Client(httpx.Client(base_url="http://bench", transport=transport)) as api:
        spec = here.spec(0, 1).model_dump(mode="json", exclude_defaults=True)
        job_id = str(api.submit(spec, wait=60)["id"])
        shown = api.job(job_id)
    return Run(here, str(shown["slurm_job_id"]), RunFolder(Path(shown["folder"])))


def _url(here: Stage) -> str:
    return f"sqlite:///{here.root}/service.db"


def _tell(what: str, run: Run, seconds: float) -> None:
    """Wait, and print what was done meanwhile."""
    first, lines = run.step, run.lines
    time.sleep(seconds)
    steps, made = run.step - first, run.lines - lines
    trouble = len(run.events(*INTERRUPTIONS))
    print(
        f"| {what} | {seconds:g} | {steps} | {made - steps} | {trouble} |", flush=True
    )


def _controller(here: Stage) -> Callable[[], None]:
    """Return what kills slurmctld."""
    every = members(here.cluster.folder.path)
    (found,) = (one for one in every if one.daemon == "slurmctld")
    return found.process.kill


def _serve(here: Stage) -> subprocess.Popen[bytes]:
    """Start a service in a process of its own."""
    words = [_url(here), str(here.root / "runs")]
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, "PYTHONPATH": root}
    return subprocess.Popen([sys.executable, "-c", SERVICE, *words], env=environ)


if __name__ == "__main__":
    main()
