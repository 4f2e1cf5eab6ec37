"""Putting tracking and its UI into the service's application."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Final

import anyio
from fastapi import FastAPI

from hpcplat.settings import Settings, own_environment
from server import mlflow
from server.aimui import codes, proxy
from server.aimui.proxy import AimGate
from server.aimui.sessions import Sessions
from server.aimui.tracking import Tracking
from server.auth import Principal, TokenScope
from server.collector.mlflow_runs import MLFLOW
from server.database import Database
from server.queries import memberships, people

FOLDER: Final = "aim"  # in the service's data folder


def is_available() -> bool:
    """Whether Aim is installed; it exists for Python below 3.13 only."""
    return find_spec("aim") is not None


@contextmanager
def tracked(
    app: FastAPI, settings: Settings, database: Database, *, secure: bool = False
) -> Iterator[None]:
    """Run the collector, serve /aim and /mlflow while the block runs.

    ``secure``: browsers come by HTTPS alone. Without Aim there is /mlflow only: what it
    takes is collected once Aim is there.
    """
    tracking = Tracking(settings.data / FOLDER, own_environment())
    gate = AimGate(
        tracking.host,
        Sessions(),
        holder=lambda digest: _holder(database, digest),
        sees=lambda principal: _sees(database, principal),
        secure=secure,
    )
    app.state.aim = gate
    app.include_router(mlflow.router)
    app.state.mlflow = mlflow.MlflowSite(settings.data / MLFLOW)
    aim: AbstractContextManager[None] = nullcontext()
    if is_available():
        add_routes(app, gate)
        app.include_router(codes.router, prefix="/api/v1")
        aim = running(tracking, gate)
    with aim, closing(app.state.mlflow):
        yield


def add_routes(app: FastAPI, gate: AimGate) -> None:
    """Serve /aim through the gate."""
    app.state.aim = gate
    app.include_router(proxy.router)


@contextmanager
def running(tracking: Tracking, gate: AimGate) -> Iterator[None]:
    """Keep the collector running while the block runs; leave no process behind.

    uvicorn sends itself the signal that ended it once more: SIGTERM must then not end
    this process before the others have ended.
    """
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    tracking.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        anyio.run(gate.close)
        tracking.close()
        signal.signal(signal.SIGTERM, before)


def _holder(database: Database, digest: str) -> Principal | None:
    with database.read() as session:
        found = people.holder_of(session, digest, datetime.now(UTC))
    if found is None:
        return None
    scopes = frozenset(scope for scope in TokenScope if scope in found.scopes)
    return Principal(found.user_id, found.user, found.is_admin, scopes)


def _sees(database: Database, principal: Principal) -> Mapping[str, bool]:
    """Return workspaces, and whether to write there: by role and by the token's scopes."""
    if TokenScope.READ not in principal.scopes:
        return {}
    with database.read() as session:
        found = memberships.workspaces_to_see(
            session, principal.user_id, everything=principal.is_admin
        )
    writes = TokenScope.WRITE in principal.scopes
    return {name: may and writes for name, may in found.items()}
