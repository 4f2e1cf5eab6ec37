"""`hpcplat events JOB`: what happened to a job, and why."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hpcplat.cli.following import event_line, events_of
from hpcplat.cli.session import AsJson, JobName, find, print_json, service

app = typer.Typer()


@app.command()
def events(
    job: JobName,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print each change of a job with its reason, oldest first."""
    with service() as client:
        found = find(client, job)
        past = [] if follow else client.events(found.id)
    if as_json and not follow:
        print_json(past)
        return
    for event in events_of(found.id) if follow else past:
        print(json.dumps(event) if as_json else event_line(event), flush=True)
