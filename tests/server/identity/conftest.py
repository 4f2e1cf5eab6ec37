"""A site's parts: a folder for everybody's runs, a sudoers file, a Python for all."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.identity import as_person, sudoers

# An ordinary user that every Debian has, in the part of the service's.
SERVICE = "games"
SYSTEM = Path("/usr/bin/python3")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder for runs that everybody may write in, as /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="hpcplat-runs-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def sudo_rule(program: Path, *people: str) -> Iterator[None]:
    """Install the program and its sudoers file, as a site does, for these people."""
    if shutil.which("sudo") is None:
        pytest.skip("sudo is not installed")
    program.parent.mkdir(mode=0o755)
    shutil.copy(as_person.__file__, program)
    program.chmod(0o755)
    group = f"hpp{os.getpid()}"
    rules = Path(f"/etc/sudoers.d/hpcplat-test-{os.getpid()}")
    try:
        subprocess.run(["groupadd", "--system", group], check=True)
        for person in people:
            subprocess.run(["usermod", "-aG", group, person], check=True)
        rules.write_text(sudoers.sudoers(SERVICE, group, program), encoding="ascii")
        rules.chmod(0o440)
        yield
    finally:
        rules.unlink(missing_ok=True)
        subprocess.run(["groupdel", group], check=True)
        shutil.rmtree(program.parent)


@pytest.fixture(scope="session")
def open_python() -> Iterator[Path]:
    """A Python that has hpcplat, and that everybody may run.

    The one of these tests may be in a home that others can't enter: then the system's,
    with the packages of these tests.
    """
    if _serves_everybody(Path(sys.executable)):
        yield Path(sys.executable)
        return
    with tempfile.TemporaryDirectory(prefix="hpcplat-python-") as name:
        venv = Path(name) / "venv"
        Path(name).chmod(0o755)
        make = [str(SYSTEM), "-m", "venv", "--without-pip", str(venv)]
        if not SYSTEM.exists() or subprocess.run(make, check=False).returncode:
            pytest.skip("no Python here can be run by everybody")
        packages = sysconfig.get_path("purelib")
        [site] = venv.glob("lib/python3*/site-packages")
        (site / "tests.pth").write_text(
            f"import site; site.addsitedir({packages!r})\n", encoding="utf-8"
        )
        if not _serves_everybody(venv / "bin" / "python"):
            pytest.skip("others can't use the packages of these tests")
        yield venv / "bin" / "python"


def _serves_everybody(python: Path) -> bool:
    entry = pwd.getpwnam(SERVICE)
    try:
        done = subprocess.run(
            [python, "-I", "-c", "import server.app, launchers.agent"],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            capture_output=True,
            cwd="/",
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0
