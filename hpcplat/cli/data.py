"""`hpcplat data`: datasets and their versions."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from hpcplat.errors import UnavailableError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Datasets: immutable versions in Zarr shards."""


try:
    from hpcplat.cli import data_views
except ModuleNotFoundError as error:  # the plain install reads no data
    raise UnavailableError(
        f"`hpcplat data` needs {error.name}, which is not installed.",
        "pip install 'hpcplat[data]', or 'hpcplat[ingest]' to make datasets.",
    ) from error

app.registered_commands += data_views.app.registered_commands
# The writing commands belong to the programs over this library, which it must not
# import: they register themselves as entry points.
for _entry in entry_points(group="hpcplat.data"):
    app.registered_commands += _entry.load().registered_commands
