"""What the agent asks of a rank by signals: a checkpoint, or a checkpoint and an end."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import IntEnum
from types import FrameType


class RankExit(IntEnum):
    """Exit codes of a rank that are neither success nor an error."""

    # sysexits.h, EX_TEMPFAIL: not done, start me again. So nothing that waits for the
    # run's success starts, and the checkpoint is there to go on from.
    STOPPED_EARLY = 75


@dataclass(slots=True)
class Asked:
    """What was asked by signals so far. The step loop looks; no signal breaks a step.

    SIGUSR1: save now. SIGUSR2 (the time limit is near) and SIGTERM: save and stop.
    """

    save: bool = False
    stop: bool = False
    by: str = ""

    def listen(self) -> None:
        """Take the signals from now on; for the main thread."""
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, self._take)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.save = True
        else:
            self.stop = True
        self.by = signal.Signals(number).name
