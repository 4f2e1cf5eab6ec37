"""The batch host dies: a service, in this process, sees to the job."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx

from hpcplat import eventlog
from hpcplat.client import Client
from hpcplat.embedding import EmbeddedTransport
from hpcplat.eventlog import EventKind
from hpcplat.ledger import ledger
from hpcplat.runfolder import RunFolder
from hpcplat.slurm.commandline import CommandLine
from server.app import create_app
from server.database import Database
from server.service import Service
from tests.benchmarks.recovery.stage import Run, Stage, until
from tests.benchmarks.recovery.took import Took


def batch_host(here: Stage, times: int) -> list[Took]:
    """Kill the batch host of a job of its own each time; at most five times."""
    scheduler = CommandLine(here.cluster.folder.slurm_conf, environ=dict(os.environ))
    database = Database(f"sqlite:///{here.root}/service.db")
    service = Service(database, scheduler, runs=str(here.root / "runs"))
    transport = EmbeddedTransport(create_app(service, threads=True), os.geteuid())
    http = httpx.Client(base_url="http://bench", transport=transport, timeout=60)
    with Client(http) as api:
        return [_once(here, api) for _ in range(min(times, 5))]


def _once(here: Stage, api: Client) -> Took:
    spec = here.spec(0, 1).model_dump(mode="json", exclude_defaults=True)
    submitted = time.time()
    job_id = str(api.submit(spec, wait=60)["id"])
    folder = RunFolder(Path(api.job(job_id)["folder"]))
    run = Run(here, "", folder)
    run.until_steps(30)
    began = run.events(EventKind.ATTEMPT_STARTED, EventKind.STEPPING)
    cold, waited = began[1].details["at"] - submitted, began[0].time - submitted
    killed = here.kill(run.nodes[0])
    until(lambda: len(run.events(EventKind.STEPPING)) > 1, "a step of the next attempt")
    took = run.events(EventKind.STEPPING)[-1].details["at"] - killed
    (failure,) = ledger(eventlog.read_all(folder.events)[0], time.time()).failures
    api.cancel(job_id)
    again = run.events(EventKind.ATTEMPT_STARTED)[1].time - killed
    print(
        f"(from the submission: {waited:.2f} s to the start, {cold:.2f} s to a step;"
        f" from the kill: {again:.2f} s to the start, {took:.2f} s to a step)",
        flush=True,
    )
    until(lambda: api.job(job_id)["state"] == "CANCELLED", "the end of the job")
    here.recover()
    return Took(took, 0.0, failure.lost_steps, failure)
