"""Real Unix users for the tests, made once and shared by test processes side by side.

Two files, neither ever removed. Who holds ``lock`` makes or removes users; it is held
for no longer than that takes, so nobody waits for another's tests. Each process that
uses the users holds ``use``, shared, for as long as it does. Nobody ever waits for that
one: whoever leaves tries, under ``lock``, to have it alone, and who gets it is the last
and removes the users. ``lock`` has the names of those that the tests made, so that one
whom a killed process left behind is removed by the next, and one whom the machine had
before is never.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def shared_users(names: Sequence[str], folder: Path, prefix: str) -> Iterator[None]:
    """Have these users for the time of the block; needs root.

    Processes that name the same folder and prefix share them; the last removes them.
    """
    with (folder / f"{prefix}users.use").open("a") as use:
        with _locked(folder / f"{prefix}users.lock") as made:
            for name in names:
                _make(name, made)
            # Granted at once: the others are shared, or under the lock that we hold.
            fcntl.flock(use, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with _locked(folder / f"{prefix}users.lock") as made:
                _remove_if_last(use, made)


@contextlib.contextmanager
def acting_as(user: str) -> Iterator[None]:
    """Be somebody else for a while, as the kernel tells the other end of a socket."""
    os.seteuid(pwd.getpwnam(user).pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[TextIO]:
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _make(name: str, made: TextIO) -> None:
    if _is_there(name):
        return
    made.write(f"{name}\n")
    made.flush()
    subprocess.run(["useradd", "--create-home", name], check=True)


def _remove_if_last(use: TextIO, made: TextIO) -> None:
    """Let go of ``use``, and remove the users that the tests made if nobody has it."""
    try:
        fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # another process uses them still
        return
    finally:
        # Not left to the end of the block: another would see it held till then.
        fcntl.flock(use, fcntl.LOCK_UN)
    made.seek(0)
    for name in filter(_is_there, set(made.read().split())):
        subprocess.run(["userdel", "--remove", name], check=True)
    made.truncate(0)


def _is_there(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
