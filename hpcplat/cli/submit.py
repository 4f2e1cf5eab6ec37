"""`hpcplat submit FILE`: a job from a spec file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hpcplat.cli.following import follow
from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.client import Client
from hpcplat.errors import ExitCode, UnavailableError
from hpcplat.ids import new_job_id
from hpcplat.jobs import JobSpec, read_spec
from hpcplat.runfiles import secret_names
from hpcplat.settings import secret_from_environment

app = typer.Typer()

TRIES: Final = 3


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A spec in YAML or JSON.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a value of the spec."),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the batch script; submit nothing.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Follow the job to its end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Submit a job.

    With --watch the exit code is the job's: 0 if it completed, else 1.
    """
    spec = in_folder(read_spec(file, changes or ()), Path.cwd())
    raise typer.Exit(send(spec, dry_run=dry_run, watch=watch, as_json=as_json))


def in_folder(spec: JobSpec, folder: Path) -> JobSpec:
    """Return the spec with the folder to work in: where it was submitted."""
    given = spec.environment.folder or ""
    environment = spec.environment.model_copy(update={"folder": str(folder / given)})
    return spec.model_copy(update={"environment": environment})


def send(spec: JobSpec, *, dry_run: bool, watch: bool, as_json: bool) -> int:
    """Submit a spec and say what became of it; returns the exit code."""
    values = spec.model_dump(mode="json", exclude_unset=True)
    secrets = {
        name: secret_from_environment(source)
        for name, source in secret_names(spec).items()
    }
    with service() as client:
        if dry_run:
            shown = client.dry_run(values, secrets=secrets)
            print_json(shown) if as_json else print(shown["script"], end="")
            return ExitCode.DONE
        job = submitted(client, values, secrets)
    if not as_json:
        print(said(job), flush=True)
    elif not watch:
        print_json(job)
    return follow(job, as_json=as_json) if watch else ExitCode.DONE


def submitted(
    client: Client, spec: Mapping[str, Any], secrets: Mapping[str, str]
) -> dict[str, Any]:
    """Submit exactly one job, whatever happens to the connection on the way.

    The same key goes with every try, so that a lost answer makes no second job. On
    Ctrl-C the service is asked whether it has the job, and it is said.
    """
    key = f"cli-{new_job_id()}"
    try:
        for left in reversed(range(TRIES)):
            try:
                return client.submit(
                    spec, secrets=secrets, idempotency_key=key, wait=30
                )
            except UnavailableError:
                if not left:
                    raise
    except KeyboardInterrupt:
        job = client.submit(spec, secrets=secrets, idempotency_key=key)
        print(
            f"\nhpcplat: {said(job)} To stop it: hpcplat cancel {job['id']}",
            file=sys.stderr,
        )
        raise
    raise AssertionError("a try either returns or raises")


def said(job: Mapping[str, Any]) -> str:
    """Return what is said of a job that was just submitted."""
    number = job["slurm_job_id"]
    if number:
        return f"Submitted job {job['id']} (Slurm job {number})."
    return f"Submitted job {job['id']}; Slurm does not have it yet. {job['reason']}"
