"""`hpcplat ui`: runs in the Aim UI, of the site's service or without one."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Protocol

import typer

from hpcplat.cli.session import find
from hpcplat.client import connect
from hpcplat.errors import UnavailableError
from hpcplat.settings import Settings, read_settings

app = typer.Typer()


@app.command()
def ui(
    job: Annotated[
        str | None, typer.Argument(help="Open at this job's run: its id or name.")
    ] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(
            help="Show run folders (or folders of them) that no service knows."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port, without a service; 0: any.")
    ] = 0,
    *,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open it in a browser.")
    ] = True,
) -> None:
    """Open the Aim UI: the service's, or one of your own until Ctrl-C.

    The address that is printed logs one browser in, once, within two minutes.
    """
    settings = read_settings()
    if settings.url.startswith("http") and not folder:
        _show(_address(settings, job), browser=browser)
        return
    then = "" if job is None else _path(settings, job)
    _alone()(
        settings,
        folders=tuple(folder or ()),
        port=port,
        then=then,
        said=lambda address: _show(address, browser=browser),
    )


def _address(settings: Settings, job: str | None) -> str:
    with connect(settings) as client:
        path = "" if job is None else find(client, job).job["aim"]
        return settings.url.rstrip("/") + client.ui_path(path)


def _path(settings: Settings, job: str) -> str:
    with connect(settings) as client:
        path: str = find(client, job).job["aim"]
        return path


def _show(address: str, *, browser: bool) -> None:
    print(address, flush=True)
    if browser:
        webbrowser.open(address)


class ServeUi(Protocol):
    """What the service puts behind its entry point."""

    def __call__(
        self,
        settings: Settings,
        *,
        folders: Sequence[Path],
        port: int,
        then: str,
        said: Callable[[str], None],
    ) -> None:
        """Serve until a signal ends it."""


def _alone() -> ServeUi:
    for point in entry_points(group="hpcplat.app", name="ui"):
        found: ServeUi = point.load()
        return found
    raise UnavailableError(
        "The service is not installed here.", "pip install 'hpcplat[server,aim]'"
    )
