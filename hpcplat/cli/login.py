"""`hpcplat login URL`: use a site's service from now on."""

from __future__ import annotations

import getpass
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import platformdirs
import typer

from hpcplat.client import connect
from hpcplat.errors import InvalidError
from hpcplat.files import write_whole
from hpcplat.settings import APP, SERVICE_FILE, URL, Settings, read_settings

app = typer.Typer()


@app.command()
def login(
    url: Annotated[str, typer.Argument(help="https://… or unix:/path/of/a/socket.")],
    *,
    munge: Annotated[
        bool,
        typer.Option(
            "--munge", help="On a host of the cluster: no token; for an hour."
        ),
    ] = False,
) -> None:
    """Use a service from now on: keeps its address, and your token.

    The token is read from the terminal, unseen, or from the standard input. A Unix
    socket needs none. HPCPLAT_URL and HPCPLAT_TOKEN go before what is kept.
    """
    settings = read_settings({**os.environ, URL: url})
    if munge:
        with connect(replace(settings, token="")) as client:
            token = str(client.log_in_by_munge()["token"])
    else:
        token = "" if url.startswith("unix:") else _asked()
    tried = replace(settings, token=token)
    with connect(tried) as client:
        version = client.health()["version"]
        client.jobs(limit=1)  # refused here if the token is not valid
    _keep(tried, token)
    print(f"{settings.url} is hpcplat {version}. Commands go there from now on.")


def _asked() -> str:
    """Return the token that somebody types or pipes in."""
    is_typed = sys.stdin.isatty()
    token = getpass.getpass("Token: ") if is_typed else sys.stdin.readline()
    if not token.strip():
        raise InvalidError("There was no token.", "Paste the one you were given.")
    return token.strip()


def _keep(settings: Settings, token: str) -> None:
    folder = configuration()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if token:
        settings.token_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(settings.token_file, token + "\n", 0o600)
    write_whole(folder / SERVICE_FILE, settings.url + "\n", 0o600)


def configuration() -> Path:
    """Return the folder of this person's configuration."""
    return platformdirs.user_config_path(APP)
