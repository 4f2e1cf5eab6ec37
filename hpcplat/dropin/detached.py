"""Work that the caller need not wait for, in a process of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

MOST_FILES = 1024


def run_detached(work: Callable[[], None]) -> None:
    """Do some work in the background and return at once.

    The process holds none of the caller's files: a shell that reads our output to its
    end, as ``$(sbatch …)`` does, must not wait for it. What goes wrong there is lost.
    """
    if os.fork():
        return
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.closerange(3, MOST_FILES)
        with contextlib.suppress(Exception):  # nobody is left who could be told
            work()
    finally:
        os._exit(0)
