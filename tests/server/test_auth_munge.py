"""MUNGE credentials, of a real munged: good once, for one request, from its user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hpcplat import processes
from hpcplat.cluster import Cluster
from hpcplat.embedding import EmbeddedTransport
from hpcplat.errors import UnavailableError
from hpcplat.munge import argv_encode, bound_to
from hpcplat.sitepolicy import SitePolicy
from server.app import create_app
from server.auth_munge import uid_of
from server.database import Database
from server.service import Service
from tests.server.fakes import FakeSlurm

PATH = "/api/v1/tokens/munge"


def credential(cluster: Cluster, payload: str, user: str | None = None) -> str:
    """Make a credential as munge does; as ``user`` where the tests are root."""
    argv = argv_encode(payload, cluster.folder.munge_socket)
    who = [] if user is None else ["setpriv", f"--reuid={user}", "--clear-groups"]
    done = processes.run([*who, *argv], timeout=10)
    assert done.ok, done.stderr
    return done.stdout.strip()


@pytest.fixture
def stranger(
    cluster: Cluster, sqlite: Database, slurm: FakeSlurm, tmp_path: Path
) -> Iterator[httpx.Client]:
    """A client of which the service knows nothing."""
    policy = SitePolicy(munge_socket=str(cluster.folder.munge_socket))
    service = Service(sqlite, slurm, runs=str(tmp_path / "runs"), policy=policy)

    class Nobody(EmbeddedTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return self.handle_request_of(request, None)

    transport = Nobody(create_app(service, threads=False), os.geteuid())
    with httpx.Client(base_url="http://test", transport=transport) as client:
        yield client


def log_in(client: httpx.Client, text: str, body: bytes = b"") -> httpx.Response:
    return client.post(PATH, headers={"Authorization": f"MUNGE {text}"}, content=body)


@pytest.mark.slurm
def test_a_credential_becomes_a_short_token_of_its_user(
    cluster: Cluster, stranger: httpx.Client
) -> None:
    user = "games" if os.geteuid() == 0 else None
    answer = log_in(stranger, credential(cluster, bound_to("POST", PATH, b""), user))
    assert answer.status_code == 201, answer.text
    token = answer.json()["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    me = user or pwd.getpwuid(os.geteuid()).pw_name
    spec = {"name": "x", "command": ["true"]}
    made = stranger.post("/api/v1/jobs", json={"spec": spec}, headers=bearer)
    if user is None or made.status_code == 201:
        assert made.json()["user"] == me


@pytest.mark.slurm
def test_a_credential_is_good_once(cluster: Cluster, stranger: httpx.Client) -> None:
    text = credential(cluster, bound_to("POST", PATH, b""))
    assert log_in(stranger, text).status_code == 201
    again = log_in(stranger, text)
    assert again.status_code == 401
    assert "replayed" in again.json()["detail"]


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", PATH, b""), ("POST", "/api/v1/jobs", b""), ("POST", PATH, b"other")],
)
def test_a_credential_of_another_request_is_refused(
    cluster: Cluster, stranger: httpx.Client, method: str, path: str, body: bytes
) -> None:
    answer = log_in(stranger, credential(cluster, bound_to(method, path, body)))
    assert answer.status_code == 401
    assert "another request" in answer.json()["detail"]


@pytest.mark.slurm
@pytest.mark.parametrize(
    "text", ["", "MUNGE:AAAA:", "MUNGE:--:", "x", "MUNGE:" + "A" * 9000 + ":", "--help"]
)
def test_what_is_no_credential_is_refused(
    cluster: Cluster, stranger: httpx.Client, text: str
) -> None:
    assert log_in(stranger, text).status_code == 401


@pytest.mark.slurm
def test_a_credential_of_another_key_is_refused(
    cluster: Cluster, stranger: httpx.Client
) -> None:
    good = credential(cluster, bound_to("POST", PATH, b""))
    middle = len(good) // 2
    flipped = "A" if good[middle] != "A" else "B"
    assert (
        log_in(stranger, good[:middle] + flipped + good[middle + 1 :]).status_code
        == 401
    )


def test_without_munged_nobody_comes_in(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="munged does not answer"):
        uid_of("MUNGE:AAAA:", "x", tmp_path / "none")


@pytest.mark.slurm
def test_many_failures_are_slowed(cluster: Cluster, stranger: httpx.Client) -> None:
    answers = [log_in(stranger, "x") for _ in range(12)]
    assert [a.status_code for a in answers[:10]] == [401] * 10
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    good = credential(cluster, bound_to("POST", PATH, b""))
    assert log_in(stranger, good).status_code == 201  # never kept out by others
