"""The failures of an attempt so far, and what is to be done about the newest."""

from __future__ import annotations

from hpcplat.eventlog import EventKind
from hpcplat.launchplan import LaunchPlan
from launchers.attempt import Attempt
from launchers.messages import Ended
from launchers.recovery.blame import Crashes, samples_of, suspected
from launchers.recovery.decision import Decision, crash_of, decide
from launchers.recovery.generation import Generation
from launchers.roster import Roster
from launchers.verdict import failure
from launchers.world import Member


class Failures:
    """Counts what is the job's own fault, and keeps bad nodes out."""

    def __init__(self, attempt: Attempt, roster: Roster) -> None:
        self._attempt, self._roster = attempt, roster
        self._crashes = Crashes()
        self._left_out = suspected(attempt.past())

    def passed(self, step: int) -> None:
        """All ranks have done so many steps: some failures are behind them."""
        self._crashes.passed(step)

    def take(self, now: Generation, step: int) -> None:
        """Take note of why ranks were ended; a lost node is nobody's fault.

        ``step`` is the newest that all had done.
        """
        if now.lost:
            return
        first = next(iter(now.failures()), None)
        if first is not None and not now.hung:
            self.tell(now, first)
        self._crashes.add(crash_of(now, first, step))

    def tell(self, now: Generation, end: Ended) -> None:
        """Say that a rank failed."""
        verdict = failure(end, now.node(end.rank))
        self._attempt.tell(
            EventKind.RANK_FAILED,
            verdict.reason,
            rank=end.rank,
            node=verdict.node,
            code=end.code,
            tail=list(end.tail),
        )

    def decide(self, plan: LaunchPlan, now: Generation) -> Decision:
        """Return what is to be done."""
        row, samples = self._crashes.row, ""
        if len(row) > plan.max_failures:
            samples = samples_of(row[-1].step, plan.batch, self._attempt.past())
        return decide(plan, now, self.usable(plan.nodes), row, samples)

    def leave_out(self, node: str, why: str) -> None:
        """Start no ranks on a node any more, as long as others suffice."""
        self._left_out.add(node)
        self._attempt.tell(EventKind.NODE_SUSPECTED, why, node=node)

    def usable(self, wanted: int) -> list[Member]:
        """Return the nodes that may be used; all, where they are fewer than wanted."""
        living = self._roster.members()
        good = [m for m in living if m.join.node not in self._left_out]
        return good if len(good) >= wanted else living
