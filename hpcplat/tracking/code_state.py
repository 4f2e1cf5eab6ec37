"""Which code a job ran: the Git commit of its folder, and what differed from it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from hpcplat.errors import UnavailableError
from hpcplat.processes import run

SECONDS: Final = 20.0
LARGEST_DIFF: Final = 4 * 1024 * 1024  # characters that are kept
LARGEST_FILE: Final = 16 * 1024 * 1024  # bytes that are hashed
MOST_FILES: Final = 200
# A repository's own settings must not run programs in our hands.
_GIT: Final = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


@dataclass(frozen=True, slots=True)
class CodeState:
    """A working tree, or loose files where there is no Git.

    ``diff`` is the SHA-256 of `git diff HEAD`, empty where nothing differed; ``files``
    maps untracked files and the program's own to their SHA-256.
    """

    folder: str
    commit: str = ""
    branch: str = ""
    remote: str = ""
    diff: str = ""
    files: tuple[tuple[str, str], ...] = ()
    problem: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether the commit alone says all."""
        return bool(self.commit) and not self.diff and not self.files

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "files": dict(self.files), "clean": self.is_clean}


def code_state(folder: Path, argv: Sequence[str] = ()) -> tuple[CodeState, str]:
    """Return the state of the code in ``folder``, and the diff itself.

    ``argv`` is what is run: its words that name files are hashed. Never raises for a
    missing Git or a broken repository: ``problem`` says so.
    """
    files = tuple(_hashed(folder, [word for word in argv if not word.startswith("-")]))
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        if not commit:
            return CodeState(str(folder), files=files), ""
        diff = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "HEAD")[
            :LARGEST_DIFF
        ]
        others = _git(folder, "ls-files", "--others", "--exclude-standard", "-z")
        untracked = [name for name in others.split("\0") if name]
        state = CodeState(
            str(folder),
            commit=commit,
            branch=_git(folder, "symbolic-ref", "--short", "-q", "HEAD"),
            remote=without_secrets(_git(folder, "remote", "get-url", "origin")),
            diff=hashlib.sha256(diff.encode()).hexdigest() if diff else "",
            files=tuple(_hashed(folder, untracked)),
        )
    except UnavailableError as error:
        return CodeState(str(folder), files=files, problem=str(error)), ""
    return state, diff


def without_secrets(remote: str) -> str:
    """Return a remote's address without the name and password that it may carry."""
    return re.sub(r"(?<=://)[^/@]*@", "", remote)


def _git(folder: Path, *words: str) -> str:
    """Return what Git says; empty where it refuses: no repository, no such thing."""
    done = run([*_GIT, "-C", folder, *words], timeout=SECONDS)
    return done.stdout.strip("\n") if done.ok else ""


def _hashed(folder: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for name in names[:MOST_FILES]:
        path = folder / name
        if path.is_file() and path.stat().st_size <= LARGEST_FILE:
            found.append((name, hashlib.sha256(path.read_bytes()).hexdigest()))
    return found
