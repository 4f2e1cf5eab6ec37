"""The writing half of `hpcplat data`."""

from __future__ import annotations

import typer

from storage.cli.exchange import export, import_
from storage.cli.ingest import ingest
from storage.cli.manage import remove, tag, verify
from storage.cli.staging import evict, stage

app = typer.Typer(no_args_is_help=True)

app.command()(ingest)
app.command()(verify)
app.command()(tag)
app.command("rm")(remove)
app.command("import")(import_)
app.command()(export)
app.command()(stage)
app.command()(evict)
