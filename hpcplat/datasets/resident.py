"""How many pages of files this process holds, and when it holds too many."""

from __future__ import annotations

import os
from functools import cache
from mmap import PAGESIZE

_LOOKS = 8  # so often within a bound is looked


class ResidentWatch:
    """Watches the pages of mapped files since it was made (Linux).

    They are the page cache's: the kernel takes them back when it needs to. But
    accounting by resident size, and people, see them as this process's memory.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._before = _resident_file_bytes()
        self._since_look = 0

    def is_over(self, read: int) -> bool:
        """Say whether the bound is passed, after ``read`` more bytes were read."""
        self._since_look += read
        if self._since_look * _LOOKS <= self._bound:
            return False
        self._since_look = 0
        return _resident_file_bytes() - self._before > self._bound


def _resident_file_bytes() -> int:
    shown = os.pread(_statm(os.getpid()), 128, 0)
    return int(shown.split()[2]) * PAGESIZE


@cache
def _statm(process: int) -> int:
    """Open the counters of a process, once: opening costs far more than reading.

    After a fork the open file would still be the parent's.
    """
    return os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)
