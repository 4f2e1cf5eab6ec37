"""Whole jobs in each way of submission, as a site has it.

The service is a process of its own, of an ordinary user but where the way is direct;
alice and bob ask it by their own commands, over its socket.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpcplat.cluster import Cluster
from server.identity import sudoers
from tests.server.identity.conftest import SERVICE, sudo_rule

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SECRET = "HPCPLAT_OF_THE_SERVICE"
COMMAND = 'id -un; umask; cd "$HPCPLAT_RUN_FOLDER"; touch made; env >environment; id -G >groups'


@dataclass(frozen=True)
class Site:
    """A service that runs, and how people reach it."""

    python: Path
    socket: Path
    runs: Path
    log: Path

    def run(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Have a person run a command of ours."""
        entry = pwd.getpwnam(user)
        with tempfile.TemporaryDirectory(prefix="hpcplat-home-") as home:
            shutil.chown(home, user)
            return subprocess.run(
                [self.python, "-I", "-m", "hpcplat.cli.main", *words],
                env={
                    "HPCPLAT_URL": f"unix:{self.socket}",
                    "HOME": home,
                    "PATH": os.defpath,
                },
                cwd=self.runs,
                user=entry.pw_uid,
                group=entry.pw_gid,
                extra_groups=[],
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )

    def json(self, user: str, *words: str) -> dict[str, Any]:
        """Have a person run a command that prints JSON."""
        done = self.run(user, *words, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(params=["direct", "sudo", "rest"])
def site(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    unix_users: tuple[str, ...],
    shared: Path,
    open_python: Path,
) -> Iterator[Site]:
    """A site of each kind."""
    way: str = request.param
    with ExitStack() as stack:
        policy: dict[str, Any] = {"submission": way, "python": str(open_python)}
        if way == "sudo":
            if sudoers.PROGRAM.parent.exists():
                pytest.skip(f"{sudoers.PROGRAM.parent} is of this machine's own site")
            stack.enter_context(sudo_rule(sudoers.PROGRAM, *unix_users))
        if way == "rest":
            key = shared / "jwt.key"
            shutil.copy(cluster.folder.jwt_key, key)
            key.chmod(0o600)
            shutil.chown(key, SERVICE)
            port = cluster.layout.ports.slurmrestd
            policy |= {"slurmrestd": f"http://127.0.0.1:{port}", "jwt_key": str(key)}
        user = "root" if way == "direct" else SERVICE
        if user != "root":
            stack.enter_context(operator(cluster, user))
        yield stack.enter_context(serving(cluster, user, policy, shared))


@contextmanager
def operator(cluster: Cluster, user: str) -> Iterator[None]:
    """Make the service's user an operator of Slurm, as the guide says."""
    cluster.add_user(user, "lab")
    level = ("modify", "user", user, "set", "AdminLevel=Operator")
    assert cluster.run("sacctmgr", "-i", *level).ok
    yield
    cluster.run("sacctmgr", "-i", "delete", "user", user)


@contextmanager
def serving(
    cluster: Cluster, user: str, policy: dict[str, Any], runs: Path
) -> Iterator[Site]:
    """Run the service as a user until the block ends."""
    entry = pwd.getpwnam(user)
    python = Path(policy["python"])
    with tempfile.TemporaryDirectory(prefix="hpcplat-site-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "policy.json").write_text(json.dumps(policy))
        shutil.chown(folder, user)
        socket, log = folder / "socket", folder / "log"
        words = ["serve", "--socket", str(socket), "--everybody", "--no-aim"]
        environ = {
            **cluster.environment(),
            "PATH": os.defpath,
            "HPCPLAT_DATA": str(folder / "data"),
            "HPCPLAT_RUNS": str(runs),
            "HPCPLAT_POLICY": str(folder / "policy.json"),
            SECRET: "x",
        }
        with (
            log.open("wb") as output,
            subprocess.Popen(
                [python, "-I", "-m", "hpcplat.cli.main", *words],
                env=environ,
                stdout=output,
                stderr=output,
                user=entry.pw_uid,
                group=entry.pw_gid,
                extra_groups=[],
                cwd="/",
            ) as process,
        ):
            try:
                await_socket(socket, process, log)
                yield Site(python, socket, runs, log)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def await_socket(socket: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while not socket.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def test_a_job_is_its_persons_from_the_command_to_the_last_file(
    site: Site, cluster: Cluster, unix_users: tuple[str, ...]
) -> None:
    spec = site.runs / "job.json"
    resources = {"nodes": 1, "gpus_per_node": 1, "time": "5m", "memory": "100M"}
    spec.write_text(
        json.dumps({"name": "who", "command": COMMAND, "resources": resources})
    )
    spec.chmod(0o644)
    jobs = {user: site.json(user, "submit", str(spec)) for user in unix_users}
    for user, account in zip(unix_users, ("nlp", "vision"), strict=True):
        check_job(site, cluster, user, account, jobs[user]["id"])
    alice, bob = unix_users
    for words in (("show",), ("logs",), ("cancel",)):
        foreign = site.run(bob, *words, jobs[alice]["id"])
        assert foreign.returncode == 1, foreign.stdout
        assert "no job" in foreign.stderr


def check_job(
    site: Site, cluster: Cluster, user: str, account: str, job_id: str
) -> None:
    """See that a job ended well, and that all of it is its person's."""
    site.run(user, "wait", "--timeout=120", job_id)
    job = site.json(user, "show", job_id)
    events = site.run(user, "events", job_id).stdout
    assert job["state"] == "COMPLETED", (job, events, site.log.read_text())
    assert site.run(user, "logs", job_id).stdout.split() == [user, "0022"]
    number = str(job["slurm_job_id"])
    told = cluster.run("sacct", "-nXP", "-j", number, "-o", "User,Account").stdout
    assert told.strip() == f"{user}|{account}"
    folder = Path(job["folder"])
    mine = pwd.getpwnam(user).pw_uid
    others = {p for p in folder.rglob("*") if p.lstat().st_uid != mine}
    assert others == set()
    assert (folder / "made").stat().st_gid == pwd.getpwnam(user).pw_gid
    names = {
        line.partition("=")[0]
        for line in (folder / "environment").read_text().splitlines()
    }
    assert not names & {SECRET, "SLURM_JWT", "HPCPLAT_POLICY", "HPCPLAT_DATA"}
