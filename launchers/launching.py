"""Gives agents their ranks: who works where, and what the ranks go on from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from hpcplat.eventlog import EventKind
from hpcplat.launchplan import LaunchPlan
from hpcplat.quantities import counted
from launchers.attempt import Attempt
from launchers.loop import Loop
from launchers.recovery.buddies import Held, going_on, with_copies
from launchers.recovery.generation import Generation
from launchers.recovery.storeprocess import StoreProcess
from launchers.roster import Roster
from launchers.world import Member, starts


class Launching:
    """Starts one generation of ranks after another; ``newest`` is None before the first.

    ``plan`` is the attempt's own, or that of a smaller world once nodes are missing.
    """

    def __init__(self, attempt: Attempt, loop: Loop, roster: Roster) -> None:
        self._attempt, self._roster = attempt, roster
        self._store = StoreProcess(loop) if attempt.plan.agent_store else None
        self.plan: LaunchPlan = attempt.plan
        self.newest: Generation | None = None

    def begin(self, action: Callable[[], None]) -> None:
        """Have a store made where ranks meet, and call ``action`` when there is one."""
        if self._store is not None:
            self._store.begin(action)

    @property
    def is_ready(self) -> bool:
        """Whether ranks have where to meet."""
        return self._store is None or self._store.port is not None

    def launch(
        self,
        places: tuple[Member, ...],
        held: Held = MappingProxyType({}),
        resume: int = -1,
        origins: Sequence[int] = (),
    ) -> Generation:
        """Start the ranks at these places.

        They go on from the copies of step ``resume``, which nodes ``held``; each rank
        from that of ``origins`` at its place (empty: its own). -1: from the disk.
        """
        host = self._attempt.host
        number = 0 if self.newest is None else self.newest.number + 1
        port = self._store.take() if self._store else None
        orders = going_on(
            starts(self.plan, places, host, number, port), resume, origins
        )
        if self.plan.copies:
            orders = with_copies(orders, self._roster.members(), host, held)
        self.newest = Generation(number, places, orders)
        self._roster.send_orders(orders)
        self._attempt.tell(
            EventKind.RANKS_STARTED,
            f"{counted(self.plan.world, 'rank')} started on {', '.join(orders)}.",
            nodes=list(orders),
            generation=number,
        )
        return self.newest
