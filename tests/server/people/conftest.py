"""A service as several people see it: each by the number of a real Unix user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from hpcplat.embedding import EmbeddedTransport
from server.app import create_app
from server.database import Database
from server.service import Service
from tests.server.fakes import FakeSlurm

# Users that every Debian has, in the parts that they play.
OWNER, DEVELOPER, VIEWER, STRANGER = "daemon", "bin", "sys", "games"

As = Callable[..., httpx.Client]


class Seen(httpx.BaseTransport):
    """A running app, as the Unix user with that number sees it (None: a stranger)."""

    def __init__(self, transport: EmbeddedTransport, uid: int | None) -> None:
        self.transport = transport
        self.uid = uid

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.transport.handle_request_of(request, self.uid)


@pytest.fixture
def service(sqlite: Database, slurm: FakeSlurm, tmp_path: Path) -> Service:
    if os.geteuid() != 0:
        pytest.skip("acting for several people takes root")
    return Service(sqlite, slurm, runs=str(tmp_path / "runs"))


@pytest.fixture
def as_user(service: Service) -> Iterator[As]:
    """Make clients: ``as_user("root")``, ``as_user(None, Authorization=…)``."""
    transport = EmbeddedTransport(create_app(service, threads=False), 0)

    def make(name: str | None, **headers: str) -> httpx.Client:
        uid = None if name is None else pwd.getpwnam(name).pw_uid
        return httpx.Client(
            base_url="http://test/api/v1",
            transport=Seen(transport, uid),
            headers=headers,
        )

    yield make
    transport.close()


@pytest.fixture
def team(as_user: As) -> As:
    """The workspace nlp with an owner, a developer and a viewer; and vision."""
    root = as_user("root")
    for name in ("nlp", "vision"):
        assert root.post("/workspaces", json={"name": name}).status_code == 201
    for user, role in ((OWNER, "owner"), (DEVELOPER, "developer"), (VIEWER, "viewer")):
        answer = root.put(f"/workspaces/nlp/members/{user}", json={"role": role})
        assert answer.status_code == 200, answer.text
    return as_user
