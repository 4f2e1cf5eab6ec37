"""Sees that no rank goes on, has all say where they stand, and names the one to blame."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from hpcplat.eventlog import EventKind
from launchers.attempt import Attempt
from launchers.loop import Loop
from launchers.messages import Look, Stacks
from launchers.recovery.generation import Generation
from launchers.recovery.hang import hang_reason, suspect
from launchers.recovery.watch import Watch
from launchers.roster import Roster
from launchers.verdict import Verdict

LOOK_SECONDS: Final = 0.7  # for agents to ask their ranks where they stand


class HangWatch:
    """Looks at one generation of ranks at a time; ``on_hang`` is called once for each.

    ``is_current`` says whether a generation is the newest, with no trouble of its own.
    """

    def __init__(
        self,
        attempt: Attempt,
        loop: Loop,
        roster: Roster,
        is_current: Callable[[Generation], bool],
        on_hang: Callable[[Generation, Verdict], None],
    ) -> None:
        self._attempt, self._loop, self._roster = attempt, loop, roster
        self._is_current, self._on_hang = is_current, on_hang
        self._stacks: dict[int, str] = {}
        self._looking: Generation | None = None
        self._told: Generation | None = None  # said once is enough

    def look(self, generation: Generation, watch: Watch) -> None:
        """Begin to ask if no rank goes on."""
        if self._looking is not None or generation is self._told:
            return
        if watch.stalled(time.monotonic()):
            self._looking, self._stacks = generation, {}
            self._roster.send_all(Look(generation.number))
            # A stopped process says nothing, and there is no doubt who it is.
            wait = 0.0 if watch.stopped() else LOOK_SECONDS
            self._loop.later(wait, partial(self._name, generation, watch))

    def take(self, found: Stacks) -> None:
        """Take note of where ranks stand."""
        if self._looking is not None and found.generation == self._looking.number:
            self._stacks |= dict(zip(found.ranks, found.texts, strict=True))

    def _name(self, generation: Generation, watch: Watch) -> None:
        """Say which rank hangs, if none has gone on meanwhile."""
        self._looking = None
        stalls = watch.stalled(time.monotonic())
        if not stalls or not self._is_current(generation):
            return
        rank = suspect(watch, self._stacks)
        node = generation.node(rank) if rank is not None else ""
        after = time.monotonic() - watch.stepped_at()
        reason = hang_reason(rank, node, watch, after)
        self._attempt.tell(
            EventKind.RANK_HANGS,
            reason,
            rank=rank,
            node=node,
            step=watch.step(),
            seconds=after,
            stack=self._stacks.get(rank, "") if rank is not None else "",
        )
        self._told = generation
        self._on_hang(generation, Verdict(1, reason, rank, node))
