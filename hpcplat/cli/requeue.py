"""`hpcplat requeue JOB …`: run jobs once more under the same id."""

from __future__ import annotations

import typer

from hpcplat.cli.cancel import JobNames
from hpcplat.cli.session import AsJson, find, print_json, service

app = typer.Typer()


@app.command()
def requeue(jobs: JobNames, *, as_json: AsJson = False) -> None:
    """Put jobs, or tasks of job arrays (JOB_4), back into the queue."""
    with service() as client:
        found = [find(client, job) for job in jobs]
        answers = [client.requeue(job.id, job.task) for job in found]
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        print(f"Requeued {answer['id']} ({answer['name']}).")
