"""What had to be let go, counted; each reason is said once."""

from __future__ import annotations

import logging

logger = logging.getLogger("hpcplat.tracking")


class Losses:
    """A count of lost values and the last reason; says each kind of reason once."""

    def __init__(self) -> None:
        self.count = 0
        self.reason = ""
        self._said: set[str] = set()

    def add(self, count: int, reason: str, detail: object = "") -> None:
        """Count ``count`` values as lost for ``reason``."""
        self.count += count
        self.reason = reason
        self.say(f"values are lost: {reason}", detail)

    def say(self, message: str, detail: object = "") -> None:
        """Warn of ``message``, once for this text; ``detail`` is of the first time."""
        if message not in self._said:
            self._said.add(message)
            logger.warning("metrics: %s %s (said once)", message, detail)
