"""Fixtures for every test: a real Slurm on this machine, and real Unix users."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pwd
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import psutil
import pytest

from hpcplat.cluster import Cluster, ClusterSpec, down, up
from hpcplat.errors import ConflictError

# Not below pytest's tmp_path: other users must be able to enter it, and sockets want
# a short path. The number is the test process's, so that what a killed one left
# behind can be told from what another one uses.
FOLDERS = Path(tempfile.gettempdir())
PREFIX = "hpcplat-test-"
USERS = ("alice", "bob")
# `make test-matrix` runs the same tests on the Slurm of a change-root folder.
ROOT = os.environ.get("HPCPLAT_TEST_ROOT")

_numbers = itertools.count(1)


def _spec(**fields: Any) -> ClusterSpec:  # noqa: ANN401 - the spec checks them
    pid, number = os.getpid(), next(_numbers)
    chosen = {
        "name": f"test-{pid}-{number}",
        "folder": FOLDERS / f"{PREFIX}{pid}-{number}",
        "root": Path(ROOT) if ROOT else None,
    }
    return ClusterSpec(**{**chosen, **fields})


@pytest.fixture
def new_spec() -> Callable[..., ClusterSpec]:
    """Make the spec of a cluster with a name and folder of its own; nothing starts."""
    return _spec


def _take_down_orphans() -> None:
    """Take down the clusters of test processes that were killed."""
    for folder in FOLDERS.glob(f"{PREFIX}[0-9]*"):
        pid = int(folder.name.removeprefix(PREFIX).split("-")[0])
        is_ours = os.geteuid() in (0, folder.stat().st_uid)
        if is_ours and not psutil.pid_exists(pid):
            with contextlib.suppress(ConflictError):  # a test's own file is in it
                down(folder)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One cluster of 4 nodes and a spare for all tests of this process.

    Leave it as you found it: no job, every node up. Tests that damage a cluster take
    ``fresh_cluster``.
    """
    _take_down_orphans()
    running = up(_spec())
    try:
        yield running
    finally:
        running.down()


@pytest.fixture
def fresh_cluster() -> Iterator[Callable[..., Cluster]]:
    """Make a cluster of one's own: ``fresh_cluster(spares=0, settings={…})``."""
    with contextlib.ExitStack() as stack:

        def make(**fields: Any) -> Cluster:  # noqa: ANN401 - as above
            running = up(_spec(**fields))
            stack.callback(running.down)
            return running

        yield make


@pytest.fixture
def slurm_environment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Make Slurm's programs, started by the test, mean the session's cluster."""
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH"))]:
        monkeypatch.delenv(name)
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    return cluster.environment()


@pytest.fixture(scope="session")
def unix_users(cluster: Cluster) -> Iterator[tuple[str, ...]]:
    """Real Unix users alice and bob, in the accounts nlp and vision; needs root.

    Those that are missing are made, and removed by the last test process that uses
    them; processes beside this one share them.
    """
    if os.geteuid() != 0:
        pytest.skip("making Unix users takes root")
    with _shared_users() as lock:
        for user, account in zip(USERS, ("nlp", "vision"), strict=True):
            cluster.add_account(account)
            cluster.add_user(user, account)
        yield USERS
        with contextlib.suppress(BlockingIOError):  # another process uses them still
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.seek(0)
            for name in set(lock.read().split()):
                subprocess.run(["userdel", "--remove", name], check=True)
            Path(lock.name).unlink()


def _shared_users() -> TextIO:
    """Make the users that are missing; return the file of their names, held shared.

    The file may be removed, with the users, by its last holder while we wait for it
    or exchange one lock for the other: then all is done again.
    """
    path = FOLDERS / f"{PREFIX}users.lock"
    while True:
        lock = path.open("a+")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_at(path, lock):
            lock.write("".join(f"{name}\n" for name in USERS if _make_user(name)))
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_at(path, lock):
                return lock
        lock.close()


def _is_at(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _make_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--create-home", name], check=True)
        return True
    return False
