"""`hpcplat admin`: what administrators of the site do."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated, Final

import typer

from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.cli.tables import Column, shown
from hpcplat.errors import UnavailableError

app = typer.Typer(help="What administrators of the site do.", no_args_is_help=True)

DIFFERENCES: Final = (
    Column("WHAT", lambda row: row["what"]),
    Column("HERE", lambda row: row["ours"] or "-"),
    Column("SLURM", lambda row: row["slurms"] or "-"),
    Column("TO MAKE SLURM FOLLOW", lambda row: row["command"], rank=1),
)


@app.callback()
def _admin() -> None:
    """Administer the site."""


@app.command()
def sync(
    *,
    write: Annotated[
        bool, typer.Option("--write", help="Make Slurm's accounts follow.")
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Make the workspaces follow Slurm.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare workspaces with Slurm's accounts; changes nothing unless told."""
    with service() as client:
        answer = client.sync(write=write, adopt=adopt)
    if as_json:
        print_json(answer)
        return
    found, left = answer["differences"], answer["left"]
    if found:
        print(shown(found, DIFFERENCES))
    if write or adopt:
        print(f"{len(found) - len(left)} of {len(found)} differences are gone.")
    elif not found:
        print("Workspaces and Slurm's accounts agree.")


@app.command()
def sudoers(
    *,
    service_user: Annotated[str, typer.Option(help="Whom the service runs as.")],
    group: Annotated[str, typer.Option(help="The Unix group of the people.")],
) -> None:
    """Print the sudoers file of a site that submits through sudo; writes nothing."""
    for point in entry_points(group="hpcplat.app", name="sudoers"):
        rules, source, program = point.load()(service_user, group)
        print(f"# install -D -m 0755 -o root {source} {program}")
        print(rules, end="")
        return
    raise UnavailableError(
        "The service is not installed here.", "pip install 'hpcplat[server]'"
    )
