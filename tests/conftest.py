"""Fixtures for every test: a real Slurm on this machine, and real Unix users."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

from hpcplat.cluster import Cluster, ClusterSpec, down, up
from hpcplat.errors import ConflictError
from tests.unix_users import shared_users

# Not below pytest's tmp_path: other users must be able to enter it, and sockets want
# a short path. The number is the test process's, so that what a killed one left
# behind can be told from what another one uses.
FOLDERS = Path(tempfile.gettempdir())
PREFIX = "hpcplat-test-"
USERS = ("alice", "bob")
# `make test-matrix` runs the same tests on the Slurm of a change-root folder.
ROOT = os.environ.get("HPCPLAT_TEST_ROOT")

# What the shell that starts the tests says of its terminal.
OF_THE_TERMINAL = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")

# A loaded machine is slow now and then: no example is judged by the clock.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

_numbers = itertools.count(1)


def pytest_configure() -> None:
    """Let no test depend on the shell that started it, nor on its owner's site."""
    for name in list(os.environ):
        is_site = name.startswith("HPCPLAT_") and not name.startswith("HPCPLAT_TEST_")
        if is_site or name in OF_THE_TERMINAL:
            del os.environ[name]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started with &: inherited
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    with shared_users(USERS, FOLDERS, PREFIX):
        for user, account in zip(USERS, ("nlp", "vision"), strict=True):
            cluster.add_account(account)
            cluster.add_user(user, account)
        yield USERS
