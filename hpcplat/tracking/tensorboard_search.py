"""Which of TensorBoard's files the ranks of a node write.

TensorBoard without TensorFlow opens its file anew for each write, so that nothing shows
who writes it but its name: ``events.out.tfevents.TIME.HOST.PID.…``. It is looked for
where such programs write: the folders that a rank works in or was told of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import psutil

MOST_FOLDERS: Final = 2000  # of one search: it must not become a burden to the disks
DEPTH: Final = 4
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "proc"})
HINT: Final = "HPCPLAT_TENSORBOARD"  # a folder that the job names itself
_NAME: Final = re.compile(r".*\.tfevents\.\d+\.(?P<host>.+?)\.(?P<pid>\d+)\.\d+.*")


class EventFile(NamedTuple):
    """An event file, and the rank that writes it."""

    path: Path
    rank: int


class EventFileSearch:
    """Knows the processes below ``ancestor``, and finds what they write."""

    def __init__(self, ancestor: int) -> None:
        self._ancestor = ancestor
        self._ranks: dict[int, int] = {}
        self._roots: dict[Path, None] = {}

    def note_processes(self) -> None:
        """Remember which processes there are now, their ranks and folders."""
        try:
            processes = psutil.Process(self._ancestor).children(recursive=True)
        except psutil.NoSuchProcess:
            return
        for process in processes:
            if process.pid not in self._ranks:
                self._note(process)

    def find(self) -> Iterator[EventFile]:
        """Yield the event files that known processes write or wrote."""
        for folder in _folders(self._roots):
            for path in folder.glob("*.tfevents.*"):
                match = _NAME.fullmatch(path.name)
                rank = self._ranks.get(int(match["pid"])) if match else None
                if rank is not None:
                    yield EventFile(path, rank)

    def _note(self, process: psutil.Process) -> None:
        try:
            variables, words = process.environ(), process.cmdline()
            folder = Path(process.cwd())
        except (OSError, psutil.Error):
            return  # it has ended, or is another user's
        rank = variables.get("RANK", "0")
        self._ranks[process.pid] = int(rank) if rank.isdecimal() else 0
        for path in _places(folder, words, variables):
            self._roots[path] = None


def _places(
    folder: Path, words: Sequence[str], variables: Mapping[str, str]
) -> Iterator[Path]:
    """Yield where a program may write: its folder, what its options name, the hint."""
    yield folder
    if HINT in variables:
        yield folder / variables[HINT]
    for word in words[1:]:
        value = word.rpartition("=")[2]
        if "/" in value and not value.startswith(("-", "http")):
            yield folder / value


def _folders(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield folders below ``roots``, near ones first, not too many."""
    left = MOST_FOLDERS
    level, seen = [path for path in roots if path.is_dir()], set[Path]()
    for _ in range(DEPTH):
        deeper: list[Path] = []
        for folder in level:
            if left <= 0 or folder in seen:
                continue
            left -= 1
            seen.add(folder)
            yield folder
            deeper += _inside(folder)
        level = deeper


def _inside(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [
                Path(entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
                and not entry.name.startswith(".")
                and entry.name not in SKIPPED
            ]
    except OSError:
        return []
