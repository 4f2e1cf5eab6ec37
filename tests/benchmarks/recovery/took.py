"""What one recovery took."""

from __future__ import annotations

from dataclasses import dataclass

from hpcplat.ledger import Failure


@dataclass(frozen=True)
class Took:
    """Seconds from the harm to a new step; the length of a step; steps made again.

    ``failure`` is the ledger's line, with the phases.
    """

    seconds: float
    usual: float
    lost: int
    failure: Failure | None = None

    @property
    def phases(self) -> tuple[float, ...]:
        """Detect, end the old ranks, start and load, first step; none if not known."""
        one = self.failure
        if one is None:
            return ()
        return (one.detect, one.reschedule, one.start, one.first_step)
