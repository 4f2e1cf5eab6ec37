"""Where the cluster's programs are run: on this machine, or in a change-root folder."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hpcplat import files, processes
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.errors import InvalidError

# Daemons live in folders that an ordinary user's PATH often lacks.
SEARCH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# The PATH of what we start, whoever calls.
PATH = os.pathsep.join(SEARCH)
ENTER = Path(__file__).with_name("enter.sh")
# A file in the root, by which enter.sh knows that it is inside already.
INSIDE_MARK = ".hpcplat-root"
# Clients that people, scripts and hpcplat call; in a change-root folder each gets a
# small program of its name on PATH.
CLIENTS = (
    "sacct",
    "sacctmgr",
    "salloc",
    "sattach",
    "sbatch",
    "sbcast",
    "scancel",
    "scontrol",
    "sdiag",
    "sinfo",
    "sprio",
    "squeue",
    "sreport",
    "srun",
    "sshare",
    "sstat",
    "strigger",
)


class Place(Protocol):
    """Where programs run; every start of one goes through ``command``."""

    @property
    def top(self) -> Path:
        """The folder that programs there see as ``/``."""
        ...

    def find(self, program: str) -> str | None:
        """Return the program's path as seen there, or None."""
        ...

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the argument list that runs ``argv`` there."""
        ...

    def prepare(self, folder: ClusterFolder) -> None:
        """Make what must exist before the first program is run there."""
        ...

    def copy_names(self) -> None:
        """Let programs there know this machine's users, groups and hosts."""
        ...

    def environment(self, folder: ClusterFolder) -> Mapping[str, str]:
        """Return what a client's environment needs for running there."""
        ...


@dataclass(frozen=True, slots=True)
class Host:
    """This machine itself; ``path`` is the caller's PATH."""

    path: str = os.defpath

    @property
    def top(self) -> Path:
        """The machine's own root."""
        return Path("/")

    def find(self, program: str) -> str | None:
        """Look along PATH, then in the folders of system programs."""
        return shutil.which(program, path=os.pathsep.join((self.path, *SEARCH)))

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments with the program's whole path, where it is found."""
        return [self.find(argv[0]) or argv[0], *argv[1:]]

    def prepare(self, folder: ClusterFolder) -> None:
        """Nothing: the machine is as it is."""

    def copy_names(self) -> None:
        """Nothing: programs see the very files."""

    def environment(self, folder: ClusterFolder) -> Mapping[str, str]:
        """Nothing: clients are on PATH already."""
        return {}


@dataclass(frozen=True, slots=True)
class ChangeRoot:
    """A folder with another system in it; ``shared`` folders are the same in both."""

    root: Path
    shared: tuple[Path, ...]
    path: str = os.defpath

    @property
    def top(self) -> Path:
        """The folder."""
        return self.root

    def find(self, program: str) -> str | None:
        """Look in the folders of programs inside the root."""
        found = shutil.which(
            program, path=os.pathsep.join(f"{self.root}{folder}" for folder in SEARCH)
        )
        return found and found.removeprefix(str(self.root))

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments that enter the root and run the program there."""
        program = self.find(argv[0]) or argv[0]
        return ["/bin/sh", *self._enter(ENTER), program, *argv[1:]]

    def _enter(self, script: Path) -> tuple[str, str, str]:
        return str(script), str(self.root), ":".join(map(str, self.shared))

    def prepare(self, folder: ClusterFolder) -> None:
        """Refuse what is no system; copy the users in; write the client programs."""
        if os.geteuid() != 0:
            raise InvalidError(
                "A change-root folder can only be entered as root.",
                "Leave out --root, or run this as root.",
            )
        if not (self.root / "etc/passwd").is_file():
            raise InvalidError(
                f"{self.root} holds no system.",
                "Make one with hpcplat cluster root SUITE, and give its folder.",
            )
        self.copy_names()
        (self.root / INSIDE_MARK).touch()
        files.write_whole(folder.enter, ENTER.read_text())
        folder.programs.mkdir()
        for client in CLIENTS:
            if inside := self.find(client):
                self._write_client(folder, client, inside)

    def copy_names(self) -> None:
        """Copy them into the root; daemons see new lines at their next look-up.

        Written in place: what has the file open or mounted sees the new text.
        """
        for name in ("passwd", "group", "hosts"):
            (self.root / "etc" / name).write_bytes(Path("/etc", name).read_bytes())

    def _write_client(self, folder: ClusterFolder, client: str, inside: str) -> None:
        line = shlex.join(["exec", "/bin/sh", *self._enter(folder.enter), inside])
        text = f'#!/bin/sh\n{line} "$@"\n'
        files.write_whole(folder.programs / client, text, mode=0o755)

    def environment(self, folder: ClusterFolder) -> Mapping[str, str]:
        """Put the client programs first on PATH."""
        return {"PATH": os.pathsep.join((str(folder.programs), self.path))}


def slurm_version(place: Place) -> tuple[int, int]:
    """Return the release of the Slurm that runs there, such as (22, 5)."""
    done = processes.run(place.command(["slurmctld", "-V"]), timeout=30)
    release = done.stdout.split()[-1].split(".") if done.ok else []
    if len(release) < 2:
        raise InvalidError(f"slurmctld -V failed: {done.complaint()}")
    return int(release[0]), int(release[1])
