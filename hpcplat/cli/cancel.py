"""`hpcplat cancel JOB …`: stop jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcplat.cli.session import AsJson, find, print_json, service

app = typer.Typer()

JobNames = Annotated[
    list[str],
    typer.Argument(metavar="JOB …", help="Ids, names or Slurm's numbers; tasks JOB_4."),
]


@app.command()
def cancel(jobs: JobNames, *, as_json: AsJson = False) -> None:
    """Cancel jobs, or tasks of job arrays (JOB_4)."""
    with service() as client:
        found = [find(client, job) for job in jobs]
        answers = [client.cancel(job.id, job.task) for job in found]
    if as_json:
        print_json(answers)
        return
    for reference, answer in zip(found, answers, strict=True):
        task = "" if reference.task is None else f", task {reference.task}"
        print(f"Cancelling {answer['id']} ({answer['name']}{task}).")
