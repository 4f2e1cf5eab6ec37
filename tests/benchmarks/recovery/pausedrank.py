"""One rank that pauses at random: garbage collections that stop all threads, slow disks.

The pauses are of its own process and real: the interpreter's lock is held for a while,
as a collection holds it, and each file that is synced takes longer.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time
from typing import Any

from hpcplat.allocation import rank_placement
from launchers.leaving import run_and_leave
from launchers.megatron.__main__ import main

MEAN = 5.0  # seconds between two collections
LONGEST = 1.0  # seconds of one
SLOW = 0.5  # seconds more for each sync, at most


def inject(rng: random.Random) -> None:
    """Pause from now on."""
    # Called through PyDLL, a function keeps the interpreter's lock.
    hold = ctypes.PyDLL(None).usleep
    sync = os.fsync

    def slow_sync(fd: Any) -> None:  # noqa: ANN401 - whatever fsync takes
        time.sleep(rng.uniform(0, SLOW))
        sync(fd)

    def collect() -> None:
        while True:
            time.sleep(rng.expovariate(1 / MEAN))
            hold(int(1e6 * rng.uniform(0.05, LONGEST)))

    os.fsync = slow_sync
    threading.Thread(target=collect, daemon=True).start()


if __name__ == "__main__":
    inject(random.Random(rank_placement().rank))
    run_and_leave(lambda: main(sys.argv[1:]))
