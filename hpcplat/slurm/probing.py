"""Whether a node's slurmd still answers, asked of itself and not of Slurm's memory."""

from __future__ import annotations

import socket
from typing import Final

from hpcplat import processes
from hpcplat.errors import UnavailableError

PATIENCE: Final = 1.5  # seconds for a TCP connection


def argv(node: str) -> list[str]:
    """Return the question for a node's address and slurmd's port."""
    return ["sinfo", "--noheader", f"--nodes={node}", "-O", "NodeAddr:256,Port:16"]


def parse(answer: str) -> tuple[str, int] | None:
    """Return (address, port), or None where Slurm does not know the node."""
    words = answer.split()[:2]
    if len(words) < 2 or not words[1].isdecimal():
        return None
    return words[0], int(words[1])


def slurmd_answers(node: str) -> bool | None:
    """Return whether slurmd takes a connection; None where it can't be found out.

    A node that crashed, or whose slurmd was ended, takes none; one that only hangs in
    user space still does, by its kernel.
    """
    try:
        done = processes.run(argv(node), timeout=10)
    except UnavailableError:
        return None
    place = parse(done.stdout) if done.ok else None
    if place is None:
        return None
    try:
        with socket.create_connection(place, PATIENCE):
            return True
    except OSError:
        return False
