"""How long a rank waits for others: what is left of a step is its own.

A slow rank does not show by its steps: all ranks of a synchronous training make them at
one rate, that of the slowest. It shows by waiting less than the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from torch._C._distributed_c10d import Work


@dataclass(slots=True)
class Waiting:
    """Seconds spent in waits for collectives and messages, since they are counted."""

    seconds: float = 0.0


def count_waits() -> Waiting:
    """Count from now on, in this process.

    Every call of torch.distributed that blocks ends in ``Work.wait``. On a GPU that only
    queues the wait there, so that nothing is counted, and no rank is called slow.
    """
    waiting, wait = Waiting(), Work.wait

    def counted(work: Work, *words: Any, **options: Any) -> bool:  # noqa: ANN401
        begun = time.monotonic()
        try:
            return wait(work, *words, **options)
        finally:
            waiting.seconds += time.monotonic() - begun

    Work.wait = counted  # type: ignore[method-assign, assignment] # there is no hook for it
    return waiting
