"""Where programs run: this machine or a change-root folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hpcplat.cluster import roots
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.place import ENTER, ChangeRoot, Host
from hpcplat.errors import InvalidError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder that looks like a system with one of Slurm's clients."""
    for part in ("etc", "usr/bin"):
        (tmp_path / "root" / part).mkdir(parents=True)
    (tmp_path / "root/etc/passwd").touch()
    (tmp_path / "root/usr/bin/squeue").touch(mode=0o755)
    return tmp_path / "root"


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    (tmp_path / "c").mkdir()
    return ClusterFolder(tmp_path / "c")


def test_system_programs_are_found_without_being_on_path() -> None:
    assert Host("/nowhere").find("sh") in ("/usr/bin/sh", "/bin/sh")
    assert Host("/nowhere").command(["no-such-program", "-x"])[0] == "no-such-program"


def test_programs_are_entered_with_their_path_inside(root: Path) -> None:
    place = ChangeRoot(root, (Path("/tmp"), Path("/srv")))
    assert place.find("squeue") == "/usr/bin/squeue"
    assert place.command(["squeue", "-h"]) == [
        "/bin/sh",
        str(ENTER),
        str(root),
        "/tmp:/srv",
        "/usr/bin/squeue",
        "-h",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root enters another root")
def test_a_root_is_prepared(root: Path, folder: ClusterFolder) -> None:
    place = ChangeRoot(root, (), path="/usr/bin")
    place.prepare(folder)
    assert (root / "etc/passwd").read_text() == Path("/etc/passwd").read_text()
    assert [path.name for path in folder.programs.iterdir()] == ["squeue"]
    environment = place.environment(folder)
    assert environment == {"PATH": f"{folder.programs}:/usr/bin"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root enters another root")
def test_a_folder_without_a_system_is_refused(folder: ClusterFolder) -> None:
    with pytest.raises(InvalidError, match="holds no system"):
        ChangeRoot(folder.path, ()).prepare(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_an_ordinary_user_is_refused(root: Path, folder: ClusterFolder) -> None:
    with pytest.raises(InvalidError, match="only be entered as root"):
        ChangeRoot(root, ()).prepare(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root enters another root")
def test_no_mount_is_left(tmp_path: Path) -> None:
    """The machine's own root, entered: its mounts are gone with the program."""
    before = Path("/proc/mounts").read_text()
    command = ["/bin/sh", str(ENTER), "/", str(tmp_path), "/bin/sh", "-c", "pwd"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tmp_path}\n"
    assert Path("/proc/mounts").read_text() == before


def test_an_unknown_debian_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="bookworm, trixie, sid"):
        roots.make("woody", tmp_path)


def test_a_root_that_is_there_is_used(tmp_path: Path) -> None:
    (tmp_path / "sid").mkdir()
    assert roots.make("sid", tmp_path) == tmp_path / "sid"
    assert [path.name for path in tmp_path.iterdir()] == ["sid"]
