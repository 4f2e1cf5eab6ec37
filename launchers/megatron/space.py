"""Where checkpoints go: whether one more can be written there, and the wait until it can.

A training whose state nobody can save should not go on for hours as if nothing were: it
waits, says so, and goes on by itself once there is room.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcplat.checkpoints.folder import free_bytes
from hpcplat.checkpoints.together import from_first, rank_and_world

PAUSE: Final = 1.0  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Space:
    """The folder of the checkpoints, and the bytes of one (all ranks')."""

    folder: Path
    needed: int

    def problem(self) -> str:
        """Say why no checkpoint can be written; "" where one can."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = free_bytes(self.folder)
            if free < self.needed:
                return (
                    f"A checkpoint has {self.needed / 1e9:.2f} GB, "
                    f"{self.folder} has {free / 1e9:.2f} GB left."
                )
            probe = self.folder / f".probe-{os.getpid()}"
            probe.write_bytes(b"room")
            probe.unlink()
        except OSError as error:
            return f"{self.folder} can't be written: {error.strerror}."
        return ""

    def known_problem(self) -> str:
        """Return what rank 0 finds; a collective."""
        rank, _ = rank_and_world()
        return str(from_first(self.problem() if rank == 0 else ""))

    def wait(
        self, tell: Callable[[str, str], None], is_stopped: Callable[[], bool]
    ) -> float:
        """Wait, on all ranks, until a checkpoint can be written or a rank must stop.

        Rank 0 looks. Returns the seconds that it took; says so before and after.
        """
        begun = time.monotonic()
        problem = self.known_problem()
        if not problem:
            return 0.0
        tell("paused", f"{problem} The training waits for room.")
        while problem and not from_first(is_stopped()):
            time.sleep(PAUSE)
            problem = self.known_problem()
        seconds = time.monotonic() - begun
        tell("goes-on", f"After {seconds:.0f} s: {problem or 'there is room again.'}")
        return seconds
