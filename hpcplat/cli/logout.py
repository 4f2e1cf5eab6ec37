"""`hpcplat logout`: forget the site's service and the token."""

from __future__ import annotations

import typer

from hpcplat.cli.login import configuration
from hpcplat.settings import SERVICE_FILE, read_settings

app = typer.Typer()


@app.command()
def logout() -> None:
    """Forget the service and the token that `hpcplat login` kept."""
    (configuration() / SERVICE_FILE).unlink(missing_ok=True)
    read_settings().token_file.unlink(missing_ok=True)
    print("Commands use a service of your own from now on.")
