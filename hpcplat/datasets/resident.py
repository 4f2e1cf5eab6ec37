"""How many pages of files this process holds, and when it holds too many."""

from __future__ import annotations

import os

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
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (each microsecond counts)
        return int(file.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")
