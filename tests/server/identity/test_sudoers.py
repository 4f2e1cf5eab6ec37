"""The sudoers file as visudo reads it, and the program that it names, alone."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hpcplat.errors import InvalidError
from server.identity import as_person, sudoers


@pytest.mark.skipif(shutil.which("visudo") is None, reason="sudo is not installed")
def test_visudo_takes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hpcplat"
    path.write_text(sudoers.sudoers("hpcplat", "hpcplat-users"), encoding="ascii")
    path.chmod(0o440)
    done = subprocess.run(
        ["visudo", "-c", "-s", "-f", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["root", "", "a b", "a,b", "%x", "ALL", "a\nb", "#0"])
def test_names_that_would_change_the_rules_are_refused(name: str) -> None:
    with pytest.raises(InvalidError):
        sudoers.sudoers(name, "people")
    with pytest.raises(InvalidError):
        sudoers.sudoers("hpcplat", name)
    with pytest.raises(InvalidError):
        sudoers.argv(name)


def asked(request: dict[str, Any], **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a person (nobody, where the tests are root)."""
    as_nobody: dict[str, Any] = (
        {"user": "nobody", "group": "nogroup", "extra_groups": []}
        if os.geteuid() == 0
        else {}
    )
    source = Path(as_person.__file__)
    return subprocess.run(
        ["/usr/bin/python3", "-I", source],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        cwd="/",
        **as_nobody,
    )


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"verb": "shell"},
        {"verb": "fill", "folder": "relative", "files": []},
        {"verb": "fill", "folder": "/tmp/../etc", "files": []},
        {"verb": "submit", "folder": "/", "script": "", "options": ["--uid=root"]},
        {"verb": "submit", "folder": "/", "script": "", "options": ["--wrap=id"]},
        {"verb": "submit", "folder": "/", "script": "", "options": ["--export=X"]},
    ],
)
def test_other_requests_are_refused(request_: dict[str, Any]) -> None:
    done = asked(request_)
    assert done.returncode == 2
    assert done.stderr.startswith("as-person:")


def test_a_file_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for path in ("/tmp/x/../../etc/passwd", "/etc/passwd", "/tmp/hpcplat-x/logs/a"):
        request = {
            "verb": "fill",
            "folder": "/tmp/hpcplat-x",
            "files": [{"path": path, "content": "", "mode": 420}],
        }
        assert asked(request).returncode == 2, path
    shutil.rmtree("/tmp/hpcplat-x", ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="the folder is another user's")
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_that_somebody_else_laid_out_is_not_filled(kind: str) -> None:
    """As bob would, who made the folder that alice's run folders are to be in."""
    with tempfile.TemporaryDirectory() as name:
        runs = Path(name)
        runs.chmod(0o1777)
        trap = runs / "nobody"
        if kind == "link":
            (runs / "bobs").mkdir()
            trap.symlink_to(runs / "bobs")
            (runs / "bobs").chmod(0o777)
        else:
            trap.mkdir()
            trap.chmod(0o777)
        shutil.chown(trap.resolve(), "games")
        file = {"path": f"{trap}/01/spec.json", "content": "x", "mode": 420}
        request = {"verb": "fill", "folder": f"{trap}/01", "files": [file]}
        done = asked(request)
        assert done.returncode == 2
        assert "belongs to somebody else" in done.stderr
        assert not (trap / "01" / "spec.json").exists()


def test_a_slurm_conf_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("")
    conf.chmod(0o666)
    with pytest.raises(as_person.RefusedError):
        as_person.check_conf(conf)


def test_the_environment_is_made_from_nothing() -> None:
    me = pwd.getpwuid(os.getuid())
    assert set(as_person.environment(me, "")) == {
        *("HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "SLURM_TIME_FORMAT")
    }


def test_the_program_needs_nothing_but_the_standard_library() -> None:
    code = f"import runpy; runpy.run_path({as_person.__file__!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
