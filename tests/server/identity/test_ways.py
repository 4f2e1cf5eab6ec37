"""Three ways to submit as a person, each on a real Slurm with real Unix users."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcplat.cluster import Cluster
from hpcplat.errors import ForbiddenError, HpcplatError, InvalidError, UnavailableError
from hpcplat.runfiles import RunFile
from hpcplat.runfolder import RunFolder
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import Submission
from server.identity import sudoers
from server.identity.throughrest import RestSite, RestSlurm
from server.identity.throughsudo import SudoSlurm
from server.preparation import Fill, fill_folder
from tests.server.identity.conftest import sudo_rule

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SECRET = "HPCPLAT_OF_THE_SERVICE"
SCRIPT = """#!/bin/bash
#SBATCH --job-name=who
#SBATCH --comment=hpcplat:{key}
#SBATCH --account={account}
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --gres=gpu:h100:1
#SBATCH --mem=100M
#SBATCH --time=00:01:00
#SBATCH --no-requeue
#SBATCH --chdir={folder}
#SBATCH --output=/dev/null
#SBATCH --open-mode=append
#SBATCH --export=ALL
id -un >who; id -G >groups; umask >mask; env >environment; touch file
mv who done
"""


@pytest.fixture
def program(unix_users: tuple[str, ...]) -> Iterator[Path]:
    """The program as a site installs it, and a sudoers file for alice alone."""
    installed = Path(f"/usr/lib/hpcplat-test-{os.getpid()}/as-person")
    with sudo_rule(installed, "alice"):
        yield installed


def files(folder: RunFolder, script: str) -> list[RunFile]:
    return [RunFile(folder.spec, '{"a": "ä $x"}\n'), RunFile(folder.script, script)]


def ran(
    scheduler: CommandLine, fill: Fill, user: str, account: str, root: Path
) -> dict[str, str]:
    """Fill a run folder, submit from it as a person, and return what the job saw."""
    folder = RunFolder(root / user / "01")
    script = SCRIPT.format(
        folder=folder.root, account=account, key=f"{user}{os.getpid()}"
    )
    fill(folder, files(folder, script), user)
    job = scheduler.submit(Submission(script, str(folder.root), user=user))
    assert job.job_id > 0
    for _ in range(150):
        if (folder.root / "done").exists():
            break
        time.sleep(0.2)
    seen = {
        name: (folder.root / name).read_text()
        for name in ("done", "groups", "mask", "environment")
    }
    entry = pwd.getpwnam(user)
    assert (folder.root / "file").stat().st_uid == entry.pw_uid
    assert (folder.root / "file").stat().st_gid == entry.pw_gid
    assert folder.spec.stat().st_uid == entry.pw_uid
    assert json.loads(folder.spec.read_text()) == {"a": "ä $x"}
    return seen


def check(seen: dict[str, str], user: str) -> None:
    own = subprocess.run(["id", "-G", user], capture_output=True, text=True, check=True)
    assert seen["done"].strip() == user
    # Slurm looks for new groups every ten minutes: not for the one of this test.
    young = {str(g.gr_gid) for g in grp.getgrall() if g.gr_name.startswith("hpp")}
    assert set(seen["groups"].split()) - young == set(own.stdout.split()) - young
    assert seen["mask"].strip() == "0022"
    variables = dict(
        line.split("=", 1) for line in seen["environment"].splitlines() if "=" in line
    )
    assert SECRET not in variables
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "SLURM_JWT", "HPCPLAT_TOKEN"):
        assert name not in variables, name
    assert variables.get("USER", user) == user


@pytest.fixture
def dirty(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment of the service that must not reach a job."""
    for name in (SECRET, "HPCPLAT_TOKEN", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "/service")
    return {**os.environ, "SLURM_JWT": "x.y.z", "KRB5CCNAME": "/service"}


@pytest.mark.parametrize(("user", "account"), [("alice", "nlp"), ("bob", "vision")])
def test_directly_as_root(
    cluster: Cluster,
    unix_users: tuple[str, ...],
    shared: Path,
    dirty: dict[str, str],
    user: str,
    account: str,
) -> None:
    environ = {name: value for name, value in dirty.items() if name != "SLURM_JWT"}
    direct = CommandLine(cluster.folder.slurm_conf, environ=environ)
    check(ran(direct, fill_folder, user, account, shared), user)


@pytest.mark.matrix
def test_through_slurmrestd(
    cluster: Cluster,
    unix_users: tuple[str, ...],
    shared: Path,
    dirty: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = RestSite(
        f"http://127.0.0.1:{cluster.layout.ports.slurmrestd}", cluster.folder.jwt_key
    )
    del dirty["SLURM_JWT"]
    rest = RestSlurm(cluster.folder.slurm_conf, environ=dirty, site=site)
    check(ran(rest, rest.fill, "alice", "nlp", shared), "alice")
    monkeypatch.setattr(rest, "_version", (0, 0, 1))  # of a Slurm before an upgrade
    check(ran(rest, rest.fill, "alice", "nlp", shared / "after"), "alice")
    folder = RunFolder(shared / "bob" / "02")
    script = SCRIPT.format(folder=folder.root, account="nlp", key="k")
    rest.fill(folder, files(folder, script), "bob")
    with pytest.raises(HpcplatError, match=r"[Aa]ccount"):  # alice's team's, not bob's
        rest.submit(Submission(script, str(folder.root), user="bob"))
    for nobody in (None, "root"):
        rest.fill(folder, files(folder, script), nobody)
        with pytest.raises(ForbiddenError):
            rest.submit(Submission(script, str(folder.root), user=nobody))
    with pytest.raises(InvalidError, match="secrets"):
        rest.fill(folder, [RunFile(folder.secrets, "{}", 0o600)], "bob")


def test_a_token_of_another_key_is_not_taken(
    cluster: Cluster, unix_users: tuple[str, ...], shared: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    site = RestSite(f"http://127.0.0.1:{cluster.layout.ports.slurmrestd}", key)
    rest = RestSlurm(cluster.folder.slurm_conf, environ=os.environ, site=site)
    folder = RunFolder(shared / "alice" / "03")
    script = SCRIPT.format(folder=folder.root, account="nlp", key="k")
    rest.fill(folder, files(folder, script), "alice")
    with pytest.raises(HpcplatError):
        rest.submit(Submission(script, str(folder.root), user="alice"))
    jobs = cluster.run("squeue", "-h", "--user=alice", "--name=who").stdout
    assert jobs == ""
    key.chmod(0o644)
    with pytest.raises(UnavailableError, match="Others can read the key"):
        rest.api_version("alice")


def test_through_sudo(
    cluster: Cluster,
    unix_users: tuple[str, ...],
    shared: Path,
    dirty: dict[str, str],
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = sudoers.argv
    ordinary = ["setpriv", "--reuid=games", "--regid=games", "--clear-groups", "--"]
    monkeypatch.setattr(sudoers, "argv", lambda *a: [*ordinary, *real(*a)])
    conf = cluster.folder.slurm_conf
    sudo = SudoSlurm(conf, environ=dirty, program=program)
    check(ran(sudo, sudo.fill, "alice", "nlp", shared), "alice")
    folder = RunFolder(shared / "bob" / "02")
    with pytest.raises(UnavailableError, match="did not let"):  # not in the group
        sudo.fill(folder, files(folder, ""), "bob")
    with pytest.raises(InvalidError, match="through sudo"):
        sudo.fill(folder, files(folder, ""), "root")
    with pytest.raises(ForbiddenError, match="as itself"):
        sudo.fill(folder, files(folder, ""), None)
    hostile = Submission("#!/bin/sh\n", "/tmp", options=("--uid=bob",), user="alice")
    with pytest.raises(InvalidError, match="not allowed"):
        sudo.submit(hostile)
    assert not folder.root.exists()


def test_sudo_runs_nothing_else(
    cluster: Cluster, unix_users: tuple[str, ...], program: Path
) -> None:
    ordinary = ["setpriv", "--reuid=games", "--regid=games", "--clear-groups", "--"]
    for words in (
        ["sudo", "-n", "-u", "alice", "/bin/sh"],
        ["sudo", "-n", "-u", "alice", str(program), "x"],
        ["sudo", "-n", "-u", "root", str(program)],
        ["sudo", "-n", "-u", "#0", str(program)],
        ["sudo", "-n", "-u", "bob", str(program)],
        ["sudo", "-n", "-u", "alice", "LD_PRELOAD=/x.so", str(program)],
    ):
        done = subprocess.run(
            [*ordinary, *words], input="{}", capture_output=True, text=True, check=False
        )
        assert done.returncode == 1, (words, done.stderr)
        assert "as-person" not in done.stderr.split("Sorry")[0], done.stderr
