"""The whole life of a cluster that belongs to an ordinary user; started by root."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hpcplat
from hpcplat.cluster import ClusterSpec, census, down

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="the other tests are run by an ordinary user already"
    ),
]
PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))


@pytest.fixture
def folder(
    new_spec: Callable[..., ClusterSpec], unix_users: tuple[str, ...]
) -> Iterator[Path]:
    folder = new_spec().folder
    yield folder
    down(folder)


@pytest.fixture
def alice(unix_users: tuple[str, ...]) -> Callable[..., str]:
    """Run a command as alice, in a shell that could be a newcomer's."""
    entry = pwd.getpwnam(unix_users[0])

    def run(*words: str, **environment: str) -> str:
        done = subprocess.run(
            words,
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            cwd="/",
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": entry.pw_dir,
                "PYTHONPATH": f"{Path(hpcplat.__file__).parents[1]}:{PACKAGES}",
                "PYTHONDONTWRITEBYTECODE": "1",
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def python(alice: Callable[..., str]) -> str:
    """Return a Python that she may run: root's own often lies in root's home."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        try:
            alice(candidate, "-c", "import jinja2, psutil, typer")
        except (AssertionError, OSError):
            continue
        return candidate
    pytest.skip("no Python with hpcplat's packages can be run by another user")


def test_all_of_it(alice: Callable[..., str], python: str, folder: Path) -> None:
    def hpcplat(*words: str) -> str:
        program = [python, "-m", "hpcplat.cli.main", "cluster"]
        return alice(*program, *words, "--folder", str(folder))

    hpcplat("up", "--nodes=2", "--spares=0")
    assert folder.owner() == "alice"
    line = hpcplat("env").strip().removeprefix("export ")
    environment = dict(word.split("=", 1) for word in shlex.split(line))

    words = 'echo "$SLURM_PROCID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"; id -un'
    step = ("srun", "-N2", "-n2", "--gpus-per-node=2", "bash", "-c", words)
    lines = sorted(alice(*step, **environment).splitlines())
    assert lines == ["0 n1 0,1", "1 n2 0,1", "alice", "alice"]
    assert "alice" in alice("sacctmgr", "-n", "-P", "show", "assoc", **environment)

    hpcplat("kill-node", "n2")
    report = json.loads(hpcplat("status", "--json"))
    assert [node["pid"] is None for node in report["nodes"]] == [False, True]
    assert None not in report["services"].values()
    hpcplat("revive-node", "n2")
    assert len(alice(*step, **environment).splitlines()) == 4

    hpcplat("down")
    assert not folder.exists()
    assert not census.members(folder)
