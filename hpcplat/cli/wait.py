"""`hpcplat wait JOB …`: until jobs are over."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from hpcplat.cli.cancel import JobNames
from hpcplat.cli.following import events_of, exit_code, is_over
from hpcplat.cli.session import AsJson, find, print_json, service
from hpcplat.cli.tables import is_terminal
from hpcplat.errors import UnavailableError

app = typer.Typer()


@app.command()
def wait(
    jobs: JobNames,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Give up after so many seconds.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Wait until jobs are over; 0 if all completed, 1 if one did not.

    Restarts of the service and gaps in the network don't end it.
    """
    with service() as client:
        found = [find(client, job).job for job in jobs]
    deadline = None if timeout is None else time.monotonic() + timeout
    ended = [_ended(job, deadline) for job in found]
    if as_json:
        print_json(ended)
    else:
        for job in ended:
            why = "" if job["state"] == "COMPLETED" else job["reason"]
            print(" ".join(filter(None, (job["id"], job["state"], why))))
    raise typer.Exit(max(exit_code(job["state"]) for job in ended))


def _ended(job: dict[str, Any], deadline: float | None) -> dict[str, Any]:
    """Return the job as it is when it is over."""
    if not is_over(job):
        for event in events_of(job["id"]):
            job = {**job, "state": event["state"], "reason": event["reason"]}
            _progress(job)
            if deadline is not None and time.monotonic() > deadline:
                break
    if not is_over(job):
        raise UnavailableError(
            f"Job {job['id']} is not over yet: {job['state']}.", "It goes on."
        )
    return job


def _progress(job: dict[str, Any]) -> None:
    if is_terminal(sys.stderr):
        print(f"\r\x1b[K{job['id']}: {job['state']}", end="", file=sys.stderr)
        if is_over(job):
            print("\r\x1b[K", end="", file=sys.stderr)
