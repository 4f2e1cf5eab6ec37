"""`hpcplat db`: the service's database."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from hpcplat.errors import UnavailableError
from hpcplat.settings import read_settings

app = typer.Typer(help="The service's database.", no_args_is_help=True)


@app.callback()
def _db() -> None:
    """Look after the service's database."""


@app.command()
def migrate() -> None:
    """Bring the tables to this release; a second time changes nothing."""
    settings = read_settings()
    for point in entry_points(group="hpcplat.app", name="migrate"):
        point.load()(settings.database)
        print("The database is of this release.")
        return
    raise UnavailableError(
        "The service is not installed here.", "pip install 'hpcplat[server]'"
    )
