"""`hpcplat serve`: the site's service."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Protocol

import typer

from hpcplat.errors import InvalidError, UnavailableError
from hpcplat.settings import Settings, read_settings

app = typer.Typer(help="Run the service.")


@app.callback(invoke_without_command=True)
def serve(
    socket: Annotated[
        Path | None,
        typer.Option(help="Listen on this Unix socket.", show_default="by the user"),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Listen on a port instead.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address of the port; others only if you ask.")
    ] = "127.0.0.1",
    *,
    everybody: Annotated[
        bool, typer.Option("--everybody", help="Let all local users use the socket.")
    ] = False,
    aim: Annotated[
        bool, typer.Option("--aim/--no-aim", help="Collect runs; the UI is at /aim.")
    ] = True,
) -> None:
    """Serve the API, submit jobs, keep their states true; Ctrl-C ends it."""
    if socket is not None and port is not None:
        raise InvalidError("--socket and --port exclude each other.", "Give one.")
    settings = read_settings()
    path = None if port is not None else socket or settings.data / "service.sock"
    _service()(
        settings,
        path=path,
        host=host,
        port=port or 0,
        mode=0o666 if everybody else 0o600,
        tracking=aim,
        said=_say,
    )


def _say(address: str) -> None:
    print(f"hpcplat listens: export HPCPLAT_URL={address}", flush=True)


class Serve(Protocol):
    """What the service puts behind its entry point."""

    def __call__(  # noqa: PLR0913 - as the command's options
        self,
        settings: Settings,
        *,
        path: Path | None,
        host: str,
        port: int,
        mode: int,
        tracking: bool,
        said: Callable[[str], None],
    ) -> None:
        """Serve until a signal ends it."""
        ...


def _service() -> Serve:
    for point in entry_points(group="hpcplat.app", name="serve"):
        found: Serve = point.load()
        return found
    raise UnavailableError(
        "The service is not installed here.", "pip install 'hpcplat[server]'"
    )
