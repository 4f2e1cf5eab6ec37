"""What must not be done to the same job again at once."""

from __future__ import annotations

from datetime import datetime, timedelta


class Spacing:
    """Lets an order for a job or task through, then none for a while."""

    def __init__(self, pause: timedelta) -> None:
        self._pause = pause
        self._last: dict[str, datetime] = {}  # by address, of the last pause alone

    def is_due(self, address: str, now: datetime) -> bool:
        """Tell whether the order may be given; if so, it counts as given."""
        self._last = {a: at for a, at in self._last.items() if now - at < self._pause}
        if address in self._last:
            return False
        self._last[address] = now
        return True

    def forget(self, slurm_job_id: int) -> None:
        """Let the next order for the job and its tasks through at once."""
        for address in list(self._last):
            if address.partition("_")[0] == str(slurm_job_id):
                del self._last[address]
