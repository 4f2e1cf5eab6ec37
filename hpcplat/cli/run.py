"""`hpcplat run [resources] -- command …`: one job without a spec file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hpcplat.cli.session import AsJson
from hpcplat.cli.submit import in_folder, send
from hpcplat.errors import InvalidError
from hpcplat.jobs import changed, spec_of

app = typer.Typer()


@app.command(context_settings={"allow_interspersed_args": False})
def run(  # noqa: PLR0913 - each is an option of the command line
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND …", help="What to run.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", "-J", help="The job's name.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-A", help="The team that pays.")
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", "-N", help="Nodes.")] = None,
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", "-G", metavar="[TYPE:]N", help="GPUs on each node."),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", "-n", help="Ranks on each node.")
    ] = None,
    cpus: Annotated[
        int | None, typer.Option("--cpus", "-c", help="CPUs of each rank.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", "-m", help="Memory of each node: 64G.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", "-t", help="Time limit: 90m, 12h, 2d.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="A partition, or several.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Any other value of a spec."),
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
    """Run a command as a job, in the folder that you are in.

    Example: hpcplat run -N 2 -G h100:4 -t 1h -- python train.py --lr 1e-4
    """
    gpu_type, count = _gpus(gpus)
    resources = {
        "nodes": nodes,
        "gpus_per_node": count,
        "gpu_type": gpu_type,
        "tasks_per_node": tasks,
        "cpus_per_task": cpus,
        "memory": memory,
        "time": time,
        "partition": partition,
    }
    values = {
        "name": name or Path(command[0]).name,
        "workspace": workspace,
        "resources": _given(resources),
        "command": command,
    }
    spec = spec_of(changed(_given(values), changes or ()))
    here = in_folder(spec, Path.cwd())
    raise typer.Exit(send(here, dry_run=dry_run, watch=watch, as_json=as_json))


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _gpus(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    kind, _, count = text.rpartition(":")
    if not count.isdecimal():
        raise InvalidError(f"--gpus {text} is no count.", "Write 4 or h100:4.")
    return kind or None, int(count)
