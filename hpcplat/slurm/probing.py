"""Whether a node's slurmd still answers, asked of itself and not of Slurm's memory."""

from __future__ import annotations

import socket
from typing import Final

from hpcplat.errors import HpcplatError
from hpcplat.slurm.scheduler import Scheduler

PATIENCE: Final = 1.5  # seconds for a TCP connection


def slurmd_answers(scheduler: Scheduler, node: str) -> bool | None:
    """Return whether slurmd takes a connection; None where it can't be found out.

    A node that crashed, or whose slurmd was ended, takes none; one that only hangs in
    user space still does, by its kernel.
    """
    try:
        place = scheduler.slurmd(node)
    except HpcplatError:  # Slurm does not answer, or does not know the node
        return None
    if place is None:
        return None
    try:
        with socket.create_connection(place, PATIENCE):
            return True
    except OSError:
        return False
