"""`hpcplat cluster`: a real Slurm on this machine."""

from __future__ import annotations

import typer

app = typer.Typer(help="A real Slurm on this machine.", no_args_is_help=True)


@app.command()
def up() -> None:
    """Start it."""
    print("up")


@app.command()
def down() -> None:
    """Stop it."""
