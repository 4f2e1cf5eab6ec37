"""`hpcplat spec`: what a job spec may say, one to start from, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hpcplat.jobs import JobKind, JobSpec, read_spec
from hpcplat.jobs.templates import TEMPLATES
from hpcplat.quantities import counted
from hpcplat.training import training_of

app = typer.Typer(help="Job specs: schema, templates, checks.", no_args_is_help=True)


@app.command()
def schema() -> None:
    """Print the JSON Schema of job specs, for editors and programs."""
    print(json.dumps(JobSpec.model_json_schema(), indent=2))


@app.command()
def template(
    kind: Annotated[JobKind, typer.Argument(help="The kind of job.")],
) -> None:
    """Print a spec to start from."""
    print(TEMPLATES[kind], end="")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A spec: YAML, or JSON by its name.")],
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a value. Repeatable."),
    ] = None,
) -> None:
    """Say what is wrong with a spec, one line for each fault; asks no cluster."""
    spec = read_spec(file, changes or ())
    if spec.preset is not None:
        training_of(spec)
    asked = spec.resources
    nodes = counted(asked.nodes, "node")
    if asked.spare_nodes:
        nodes += f" and {counted(asked.spare_nodes, 'spare')}"
    print(
        f"{file} is right: {counted(asked.world, 'rank')} of {spec.name!r} on {nodes}."
    )
