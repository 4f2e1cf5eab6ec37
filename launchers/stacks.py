"""Where a rank stands in its program: Python's own dump of all threads, on a signal.

It needs no right to look into other processes, and works within calls into C.
"""

from __future__ import annotations

import faulthandler
import signal
from typing import Final

SIGNAL: Final = signal.SIGQUIT  # as Java's virtual machine has it
HEAD: Final = "most recent call first"
LONGEST: Final = 4000  # characters
# A rank that stands here waits for others: it is not the one that hangs.
WAITS: Final = ("torch/distributed/", "p2p_communication.py", "launchers/memory.py")


def listen() -> None:
    """Dump all stacks to standard error whenever the signal comes."""
    faulthandler.register(SIGNAL, all_threads=True)


def main_stack(dump: str) -> str:
    """Return the main thread's part of a dump, newest frame first; "" without one."""
    parts = dump.split("\n\n")
    found = [part for part in parts if HEAD in part]
    return found[-1].strip()[:LONGEST] if found else ""


def waits_for_others(stack: str) -> bool:
    """Return whether a rank waits in a collective, by its newest frames."""
    frames = [line for line in stack.splitlines() if line.lstrip().startswith("File ")]
    return any(word in frame for frame in frames[:4] for word in WAITS)
