"""The guard: a process that outlives a killed agent by a moment, and ends its ranks.

The kernel ends a rank with its agent (PR_SET_PDEATHSIG), but not what the rank started,
and Slurm finds those orphans only where it tracks processes by cgroup.
"""

from __future__ import annotations

import os
import signal
from typing import Final

IGNORED: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class Guard:
    """The agent's end of it: tells which process groups are to end with the agent.

    Made by fork before anything else runs; it notices the agent's death by the end of
    the pipe between them, which no rank inherits.
    """

    def __init__(self) -> None:
        reading, self._pipe = os.pipe()
        if os.fork() == 0:
            os.close(self._pipe)
            _stand_guard(reading)
        os.close(reading)

    def watch(self, leader: int) -> None:
        """End this process group if the agent dies."""
        self._tell(f"+{leader}\n")

    def release(self, leader: int) -> None:
        """Forget a group that ended."""
        self._tell(f"-{leader}\n")

    def _tell(self, line: str) -> None:
        try:
            os.write(self._pipe, line.encode())
        except BrokenPipeError:
            return  # somebody killed the guard; the ranks need not suffer for it


def _stand_guard(reading: int) -> None:
    """Follow the agent's lines to their end, end the groups, and leave."""
    os.setsid()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    with os.fdopen(reading) as lines:
        for line in lines:
            change = groups.add if line[0] == "+" else groups.discard
            change(int(line[1:]))
    for leader in groups:
        try:
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os._exit(0)  # not the agent's own way out
