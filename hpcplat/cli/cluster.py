"""`hpcplat cluster`: a real Slurm on this machine."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hpcplat import cluster
from hpcplat.cli import tables
from hpcplat.cli.tables import Column
from hpcplat.cluster import ClusterStatus, roots
from hpcplat.cluster.spec import default_folder, plain_path
from hpcplat.errors import InvalidError
from hpcplat.quantities import counted

app = typer.Typer(help="A real Slurm on this machine.", no_args_is_help=True)

Name = Annotated[str, typer.Option("--name", help="The cluster's name.")]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where all of it lies.", show_default="by the name"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

COLUMNS = (
    Column("NODE", lambda node: str(node["name"])),
    Column("GPUS", lambda node: str(node["gpus"]) or "-"),
    Column("STATE", lambda node: str(node["state"])),
    Column("SLURMD", lambda node: str(node["pid"] or "dead"), right=True),
    Column("PROCESSES", lambda node: str(node["processes"]), right=True),
    Column("", lambda node: "spare" if node["is_spare"] else ""),
)


@app.command()
def up(  # noqa: PLR0913 - the signature is the command line
    *,
    name: Name = "local",
    folder: Folder = None,
    nodes: Annotated[
        str, typer.Option(help="How many; or groups, such as 4:h100x4,2:a100x8.")
    ] = "4",
    spares: Annotated[
        int, typer.Option(help="Further nodes, which Slurm fills last.")
    ] = 1,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of each node.")] = 4,
    gpu_type: Annotated[str, typer.Option(help="Their type.")] = "h100",
    partition: Annotated[str, typer.Option(help="The partition's name.")] = "gpu",
    account: Annotated[str, typer.Option(help="Your Slurm account.")] = "lab",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A slurm.conf line: SlurmdTimeout=10. Repeatable."),
    ] = None,
    requeue_delay: Annotated[
        int, typer.Option(help="Seconds that a requeued job waits.")
    ] = 120,
    root: Annotated[
        Path | None, typer.Option(help="Run the Slurm in this change-root folder.")
    ] = None,
) -> None:
    """Start it; one that is up already stays as it is."""
    spec = cluster.ClusterSpec(
        name=name,
        folder=folder or Path(),
        groups=cluster.parse_groups(nodes, gpu_type=gpu_type, gpus=gpus_per_node),
        spares=spares,
        partition=partition,
        account=account,
        settings=dict(_pair(line) for line in setting or ()),
        requeue_delay=requeue_delay,
        root=plain_path(root) if root else None,
    )
    console = Console(stderr=True)
    with console.status(f"Starting the cluster {name!r} …"):
        cluster.up(spec)
    count = len(spec.nodes)
    print(f"The cluster {name!r} is up: {counted(count, 'node')} in {spec.folder}.")
    print(f'For your shell: eval "$(hpcplat cluster env{_same(name, folder)})"')


@app.command()
def down(*, name: Name = "local", folder: Folder = None) -> None:
    """Kill all of it, jobs too, and remove its folder."""
    where = _where(name, folder)
    if cluster.down(where):
        print(f"The cluster in {where} is down; nothing of it is left.")
    else:
        print(f"No cluster is in {where}.")


@app.command()
def status(
    *, name: Name = "local", folder: Folder = None, as_json: Json = False
) -> None:
    """Show its daemons and nodes."""
    report = cluster.find(_where(name, folder)).status()
    if as_json:
        print(json.dumps(dataclasses.asdict(report), indent=2))
    else:
        _show(report)


@app.command()
def env(*, name: Name = "local", folder: Folder = None, as_json: Json = False) -> None:
    """Print what your shell needs, for eval."""
    environment = cluster.find(_where(name, folder)).environment()
    if as_json:
        print(json.dumps(environment, indent=2))
    else:
        for key, value in environment.items():
            print(f"export {key}={shlex.quote(value)}")


@app.command()
def kill_node(node: str, *, name: Name = "local", folder: Folder = None) -> None:
    """Kill all that a power cut would: the node's daemons and all that its jobs run."""
    count = cluster.find(_where(name, folder)).kill_node(node)
    killed = "1 process" if count == 1 else f"{count} processes"
    print(f"{node} is dead: {killed} killed. Slurm finds out by itself.")


@app.command()
def revive_node(node: str, *, name: Name = "local", folder: Folder = None) -> None:
    """Start the node again and wait until Slurm counts on it."""
    cluster.find(_where(name, folder)).revive_node(node)
    print(f"{node} is back.")


@app.command()
def root(suite: str) -> None:
    """Make a folder with another Debian and its Slurm, for `up --root` (as root)."""
    console = Console(stderr=True)
    with console.status(f"Looking for Debian {suite}, or making it (a minute) …"):
        folder = roots.make(suite, roots.default_home())
    print(folder)


def _where(name: str, folder: Path | None) -> Path:
    return plain_path(folder or default_folder(name))


def _same(name: str, folder: Path | None) -> str:
    if folder:
        return f" --folder {folder}"
    return "" if name == "local" else f" --name {name}"


def _pair(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals:
        raise InvalidError(f"{line!r} is not a setting.", "Write --set Name=value.")
    return name, value


def _show(report: ClusterStatus) -> None:
    """Print the nodes as a table; for a program one line each, and no more."""
    rows = [dataclasses.asdict(node) for node in report.nodes]
    if not tables.is_terminal():
        print(tables.shown(rows, COLUMNS))
        return
    services = [
        f"{name} {'is dead' if pid is None else pid}"
        for name, pid in report.services.items()
    ]
    print(f"{report.name}: Slurm {report.version}, partition {report.partition}\n")
    print(tables.shown(rows, COLUMNS))
    print(f"\nservices  {', '.join(services)}")
    print(f"REST      {report.rest_url}")
    print(f"folder    {report.folder}")
