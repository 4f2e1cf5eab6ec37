"""What a keeper was told with the newest start of the ranks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launchers.recovery.copies import EMPTY

Place = tuple[str, int]  # address and port


@dataclass(frozen=True, slots=True)
class Orders:
    """Which step to go on from, where copies go, and where those lie that are not here.

    ``origins`` says for each rank of this node whose copy it takes up.
    """

    generation: int = EMPTY
    resume: int = EMPTY
    buddy: Place | None = None
    sources: Mapping[int, Place] = field(default_factory=dict)
    origins: Mapping[int, int] = field(default_factory=dict)


def orders_of(message: Mapping[str, Any]) -> Orders:
    """Return the orders in an agent's message."""
    buddy = message["buddy"]
    sources = {
        int(rank): (address, port)
        for rank, (address, port) in message["sources"].items()
    }
    return Orders(
        message["generation"],
        message["resume"],
        (buddy[0], buddy[1]) if buddy else None,
        sources,
        {int(rank): int(origin) for rank, origin in message["origins"].items()},
    )


class OrderBook:
    """The newest orders; for any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.newest = Orders()

    def put(self, orders: Orders) -> None:
        """Replace them."""
        with self._changed:
            self.newest = orders
            self._changed.notify_all()

    def of(self, generation: int, patience: float) -> Orders:
        """Return the orders for ranks of a generation: a rank may come before them."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.newest.generation >= generation, patience
            )
            return self.newest
