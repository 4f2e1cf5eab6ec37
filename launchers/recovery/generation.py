"""One start of all ranks within an attempt: who runs them, and how they ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hpcplat.signals import RankExit
from launchers.messages import Ended, Start
from launchers.verdict import Verdict
from launchers.world import Member, node_of

# How long (seconds) after the first failing rank the others fail because of it: their
# sockets to it close, or theirs do that had sockets to it.
ECHO: float = 1.0
ECHOES = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")


@dataclass(slots=True)
class Generation:
    """The ranks of one start; ``places`` in the order of their node ranks."""

    number: int
    places: tuple[Member, ...]
    orders: dict[str, Start]
    ends: dict[int, Ended] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    hung: Verdict | None = None
    steps: bool = False  # all ranks have done a step

    def left(self, nodes: Collection[str]) -> set[int]:
        """Return the ranks that have not ended on those of the nodes that work."""
        ranks = {
            rank
            for node, order in self.orders.items()
            if node in nodes
            for rank in order.ranks
        }
        return ranks - self.ends.keys()

    def failures(self) -> list[Ended]:
        """Return the ranks that failed by themselves, the likely cause first.

        A rank whose last words are of a connection that broke is an echo of another's
        death, whatever its clock says.
        """
        failed = [end for end in self.ends.values() if is_failure(end)]
        return sorted(failed, key=lambda end: (is_echo(end), end.time))

    def cause(self) -> Ended | None:
        """Return the rank that failed of itself; None where all are echoes."""
        first = next(iter(self.failures()), None)
        return None if first is None or is_echo(first) else first

    def node(self, rank: int) -> str:
        """Return the node of a rank."""
        return node_of(rank, self.orders)


def is_failure(end: Ended) -> bool:
    """Return whether a rank failed: it was not told to end, and had not done its work."""
    return bool(end.code) and not end.stopped and end.code != RankExit.STOPPED_EARLY


def all_stopped_early(ends: Iterable[Ended]) -> bool:
    """Return whether all ranks saved and stopped because they were warned."""
    codes = {end.code for end in ends}
    return RankExit.STOPPED_EARLY in codes and codes <= {0, RankExit.STOPPED_EARLY}


def is_echo(end: Ended) -> bool:
    """Return whether a rank failed because another one was gone."""
    return any(word in line for line in end.tail[-12:] for word in ECHOES)
