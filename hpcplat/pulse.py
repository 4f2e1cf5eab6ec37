"""A rank's pulse: the step it has done and what it is at, for its agent to read.

A few bytes of memory that agent and rank share. A beat costs less than a microsecond
and is no system call: a training script may beat after every step.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

SLOT: Final = 64  # bytes of a rank: a cache line of its own
_BEAT: Final = struct.Struct("=qqdd")


class Phase(IntEnum):
    """What a rank is at. Only in TRAINING is silence a bad sign."""

    STARTING = 0
    TRAINING = 1
    OTHER = 2  # evaluating, saving: as long as it takes


@dataclass(frozen=True, slots=True)
class Beat:
    """The last beat: steps done (0: none yet), the phase, when (monotonic seconds).

    ``own`` are the seconds that the rank spent in its steps without its waits for
    others, since it started; 0 where it does not tell.
    """

    step: int
    phase: Phase
    time: float
    own: float = 0.0


class PulseBoard:
    """The agent's side: memory for the pulses of a node's ranks, gone with the agent."""

    def __init__(self, ranks: int) -> None:
        self._file = os.memfd_create("hpcplat-pulse", os.MFD_CLOEXEC)
        os.ftruncate(self._file, max(ranks, 1) * SLOT)
        self._memory = mmap.mmap(self._file, max(ranks, 1) * SLOT)
        # Another process of the same user opens it by this name.
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"

    def clear(self) -> None:
        """Forget all beats, before other ranks start."""
        self._memory[:] = bytes(len(self._memory))

    def read(self, local_rank: int) -> Beat:
        """Return a rank's last beat."""
        step, phase, when, own = _BEAT.unpack_from(self._memory, local_rank * SLOT)
        return Beat(step, Phase(phase), when, own)


class Pulse:
    """The rank's side. Without a board (no agent) beats go nowhere."""

    def __init__(self, board: Path | None, local_rank: int) -> None:
        self._place = local_rank * SLOT
        self._memory: mmap.mmap | None = None
        if board is not None:
            with board.open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), 0)

    def beat(self, step: int, phase: Phase = Phase.TRAINING, own: float = 0.0) -> None:
        """Say that ``step`` steps are done, what comes now, and the ``own`` time so far."""
        if self._memory is not None:
            now = time.monotonic()
            _BEAT.pack_into(self._memory, self._place, step, phase, now, own)
