"""The Aim UI for one person, without a service: `hpcplat ui`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI

from hpcplat.errors import ConflictError, UnavailableError
from hpcplat.settings import Settings, own_environment
from server.aimui.install import FOLDER, add_routes, is_available, running
from server.aimui.proxy import AimGate
from server.aimui.rules import safe_next
from server.aimui.sessions import Sessions
from server.aimui.tracking import Tracking
from server.auth import Principal

ADDRESS: Final = "127.0.0.1"


def serve_ui(
    settings: Settings,
    *,
    folders: Sequence[Path] = (),
    port: int = 0,
    then: str = "",
    said: Callable[[str], None] = print,
) -> None:
    """Serve the UI on this machine until Ctrl-C; ``said`` gets the address.

    ``folders``: run folders, or folders of them; none: all runs of the settings'
    database. Others on this machine can reach the port, but have no way in: the
    address logs one browser in, once.
    """
    if not is_available():
        raise UnavailableError(
            "Aim is not installed (there is none for Python 3.13 and later).",
            "pip install 'hpcplat[aim]', or draw curves with `hpcplat plot`.",
        )
    logging.basicConfig(format="hpcplat: %(message)s")
    words = ["--folders", *map(str, folders)] if folders else []
    tracking = Tracking(settings.data / FOLDER, own_environment(), words)
    repositories = settings.data / FOLDER
    gate = AimGate(
        tracking.host,
        Sessions(),
        holder=lambda _: None,
        sees=lambda _: _repositories(repositories),
    )
    app = FastAPI(openapi_url=None)
    add_routes(app, gate)
    with _listening(port) as listener, running(tracking, gate):
        code = gate.sessions.new_code(Principal(0, "local", is_admin=True))
        own_port = listener.getsockname()[1]
        path = f"/aim/login?code={code}&next={safe_next(then, '/aim')}"
        said(f"http://{ADDRESS}:{own_port}{path}")
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        uvicorn.Server(config).run(sockets=[listener])


def _repositories(folder: Path) -> Mapping[str, bool]:
    return {path.parent.name: True for path in sorted(folder.glob("*/.aim"))}


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
    except OSError as error:
        listener.close()
        raise ConflictError(
            f"Port {port} of {ADDRESS} can't be listened on ({error.strerror}).",
            "Choose another one: --port.",
        ) from error
    return listener
