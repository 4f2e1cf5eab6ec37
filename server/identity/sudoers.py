"""The sudoers file of a site whose service submits through sudo. Pure text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hpcplat.errors import InvalidError
from server.identity import as_person

PROGRAM: Final = Path("/usr/lib/hpcplat/as-person")
SUDO: Final = "/usr/bin/sudo"
_NAME: Final = re.compile(r"[a-z_][a-z0-9_\-]{0,30}", re.ASCII)
_PATH: Final = re.compile(r"/[A-Za-z0-9_/.\-]{1,200}", re.ASCII)


def sudoers(service_user: str, group: str, program: Path = PROGRAM) -> str:
    """Return the file: one program, without arguments, as members of one group.

    Root is no member whatever the group's file says: sudo is told so besides. The
    environment is made anew, and none of the caller's variables is kept.
    """
    for name in (service_user, group):
        if not _NAME.fullmatch(name) or name == "root":
            raise InvalidError(f"{name!r} can't stand in sudoers.", "Name another one.")
    if not _PATH.fullmatch(str(program)):
        raise InvalidError(f"{program} can't stand in sudoers.", "Give a plain path.")
    return "\n".join(
        [
            "# hpcplat: the service may fill run folders and submit as members of the",
            f"# group {group}; never as root, and nothing else. Check: visudo -c -f FILE",
            f"Defaults!{program} env_reset, !env_keep, !setenv, !requiretty",
            f"Defaults!{program} !log_output, umask=0022, closefrom=3",
            f'{service_user} ALL=(%{group}, !root) NOPASSWD: {program} ""',
            "",
        ]
    )


def argv(user: str, program: Path = PROGRAM) -> list[str]:
    """Return the arguments that start the program as a person; never a question."""
    if not _NAME.fullmatch(user) or user == "root":
        raise InvalidError(
            f"Nobody can be {user!r} through sudo.", "Ask as an ordinary user."
        )
    return [SUDO, "-n", "-u", user, "--", str(program)]


def for_site(service_user: str, group: str) -> tuple[str, Path, Path]:
    """Return the file, where the program that it names is now, and where it goes."""
    return sudoers(service_user, group), Path(as_person.__file__), PROGRAM
