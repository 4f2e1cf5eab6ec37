"""Fixtures of the service's tests: both databases, and a small fake Slurm for faults."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.database import Database
from tests.server.fakes import FakeSlurm

_databases = itertools.count(1)


@dataclass(frozen=True)
class PostgresServer:
    """A PostgreSQL of the tests' own, on a Unix socket, trusting whoever gets there."""

    programs: Path
    sockets: Path

    def new_database(self) -> str:
        name = f"test_{os.getpid()}_{next(_databases)}"
        self._psql("postgres", f"CREATE DATABASE {name}")
        return f"postgresql://hpcplat@/{name}?host={self.sockets}"

    def _psql(self, database: str, statement: str) -> None:
        subprocess.run(
            [
                self.programs / "psql",
                *("-h", self.sockets, "-U", "hpcplat", "-d", database),
                *("-v", "ON_ERROR_STOP=1", "-qc", statement),
            ],
            check=True,
        )


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(on_path).parent if on_path else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start PostgreSQL as an unprivileged user (it refuses root), and end it."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="hpcplat-pg-"))
    user = _unprivileged()
    shutil.chown(folder, user)
    data = folder / "data"
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "hpcplat", "-A", "trust", "-N"],
        check=True,
        stdout=subprocess.DEVNULL,
        user=user,
        cwd="/",
    )
    options = ["-h", "", "-k", str(folder), "-c", "fsync=off"]
    options += ["-c", "max_connections=200"]
    log = (folder / "log").open("wb")
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, *options],
        stdout=log,
        stderr=log,
        user=user,
        cwd="/",
    )
    try:
        _await_postgres(programs, folder, server)
        yield PostgresServer(programs, folder)
    finally:
        server.send_signal(signal.SIGINT)  # fast: it waits for no client
        server.wait(30)
        log.close()
        shutil.rmtree(folder)


def _unprivileged() -> str:
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _await_postgres(
    programs: Path, folder: Path, server: subprocess.Popen[bytes]
) -> None:
    for _ in range(200):
        asked = subprocess.run(
            [programs / "pg_isready", "-q", "-h", folder], check=False
        )
        if asked.returncode == 0:
            return
        if server.poll() is not None:
            break
        try:
            server.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise RuntimeError((folder / "log").read_text())


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hpcplat.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated database of each kind."""
    found = Database(database_url)
    found.migrate()
    yield found
    found.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Database]:
    """A migrated SQLite database, where the kind does not matter."""
    found = Database(f"sqlite:///{tmp_path}/hpcplat.db")
    found.migrate()
    yield found
    found.close()


@pytest.fixture
def slurm() -> FakeSlurm:
    """A fake Slurm that is up and empty."""
    return FakeSlurm()
