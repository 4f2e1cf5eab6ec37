"""Ends all ranks once some are lost, and waits for what the living nodes still have."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from launchers.loop import Loop
from launchers.messages import Halt, Inventory
from launchers.recovery.generation import Generation
from launchers.roster import Roster

HALT_SECONDS: Final = 2.0  # from SIGKILL to the last rank's end, tens of ms as a rule


@dataclass(slots=True)
class Trouble:
    """Ranks are being ended because others were lost; since when (seconds, Unix).

    ``held`` maps a node to the (rank, step) pairs of the copies in its memory.
    """

    generation: Generation
    began: float = field(default_factory=time.time)
    is_late: bool = False
    is_over: bool = False  # it was said what is done about it
    held: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)


class Regrouping:
    """At most one trouble at a time; ``on_done`` is called when its ranks are gone.

    ``copies``: nodes are asked which copies they hold. Without one rank that ended of
    itself, a node that was lost or a rank that hangs, nothing is done: the agents will
    tell.
    """

    def __init__(
        self,
        loop: Loop,
        roster: Roster,
        on_done: Callable[[Trouble], None],
        *,
        copies: bool,
    ) -> None:
        self._loop, self._roster, self._on_done = loop, roster, on_done
        self._copies = copies
        self._trouble: Trouble | None = None

    @property
    def is_on(self) -> bool:
        """Whether ranks are being ended."""
        return self._trouble is not None

    def begin(self, now: Generation) -> None:
        """Have all other ranks ended at once: without the lost ones none can go on."""
        if self._trouble is None:
            self._trouble = Trouble(now)
            self._roster.send_all(Halt(now.number))
            self._loop.later(HALT_SECONDS, partial(self._go_on_late, self._trouble))

    def drop(self) -> None:
        """Let it be: the attempt ends."""
        self._trouble = None

    def take(self, node: str, found: Inventory) -> None:
        """Take note of a node's copies."""
        trouble = self._trouble
        if trouble is None or found.generation != trouble.generation.number:
            return
        trouble.held[node] = tuple(zip(found.ranks, found.steps, strict=True))
        self.look()

    def look(self) -> None:
        """Go on once every rank of the living nodes has ended, and all is known."""
        trouble = self._trouble
        if trouble is None or trouble.is_over:
            return
        if trouble.generation.left(self._roster.nodes()):
            return
        if not trouble.is_late and self._awaits_copies(trouble):
            return
        now = trouble.generation
        if now.lost or now.hung or now.cause() or trouble.is_late:
            trouble.is_over = True
            self._on_done(trouble)

    def _awaits_copies(self, trouble: Trouble) -> bool:
        return self._copies and not self._roster.nodes() <= trouble.held.keys()

    def _go_on_late(self, trouble: Trouble) -> None:
        """Go on without those that did not answer in time."""
        if trouble is not self._trouble:
            return
        trouble.is_late = True
        late = {n for n in self._roster.nodes() if trouble.generation.left({n})}
        self._roster.drop(late)
        self.look()
