"""`hpcplat data`: datasets and their versions."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Datasets: versions in Zarr shards."""


# The writing commands belong to the programs over this library, which it must not
# import: they register themselves as entry points.
for _entry in entry_points(group="hpcplat.data"):
    app.registered_commands += _entry.load().registered_commands
