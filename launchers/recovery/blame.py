"""Failures in a row, and what they have in common: a node, a rank or a step; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hpcplat.eventlog import EventKind, RunEvent

SAME_NODE: Final = 2  # failures in a row on one node: another one is tried
LONGEST_PAUSE: Final = 30.0  # seconds
RESUMED: Final = "resumed"


@dataclass(frozen=True, slots=True)
class Crash:
    """A rank failed or hung by itself: which, where, and the last step it had done.

    ``rank`` is None and ``node`` empty where nobody knows who it was.
    """

    rank: int | None
    node: str
    step: int


@dataclass(slots=True)
class Crashes:
    """Those in a row, without a step beyond them in between.

    A run that goes back to a checkpoint makes steps again before it comes to where it
    failed: only what lies beyond is progress.
    """

    row: list[Crash] = field(default_factory=list)

    def add(self, crash: Crash) -> None:
        """Take note of one more."""
        self.row.append(crash)

    def passed(self, step: int) -> None:
        """All ranks have done ``step`` steps."""
        if self.row and step > max(crash.step for crash in self.row):
            self.row.clear()


def pause(row: Sequence[Crash]) -> float:
    """Return how long to wait before another start: none at first, then ever longer."""
    return min(2.0 ** (len(row) - 2), LONGEST_PAUSE) if len(row) > 1 else 0.0


def bad_node(row: Sequence[Crash]) -> str:
    """Return the node on which the last failures in a row were; "" if there is none."""
    last = row[-SAME_NODE:]
    nodes = {crash.node for crash in last}
    return nodes.pop() if len(last) == SAME_NODE and len(nodes) == 1 else ""


def suspected(past: Iterable[RunEvent]) -> set[str]:
    """Return the nodes that were left out in earlier attempts of the job."""
    kind = EventKind.NODE_SUSPECTED
    return {str(event.details["node"]) for event in past if event.kind == kind}


def pattern(row: Sequence[Crash], samples: str) -> str:
    """Say what failures in a row have in common; "" for a single one.

    ``samples`` names those of the step in which the last one was.
    """
    if len(row) < SAME_NODE:
        return ""
    nodes = sorted({crash.node for crash in row if crash.node})
    ranks, steps = {crash.rank for crash in row}, {crash.step for crash in row}
    begun = f"{len(row)} failures in a row"
    step = max(steps) + 1
    if len(nodes) > 1 and len(ranks) == 1:
        who = f"rank {row[0].rank} on {' and '.join(nodes)}"
        return (
            f"{begun}, each time {who}: not a node, but the code or the data{samples}."
        )
    if len(steps) == 1 and max(steps) > 0:
        return f"{begun}, each time in step {step}: the code or the data{samples}."
    if len(nodes) == 1 and len(ranks) > 1:
        return f"{begun}, all on {nodes[0]}, of several ranks: the node is suspected."
    return f"{begun}."


def samples_of(step: int, batch: int, past: Iterable[RunEvent]) -> str:
    """Name the samples of the step after ``step`` steps, as part of a sentence.

    Counted from where the run resumed last: samples that were left out are none of
    any step's. "" where the size of the batch is not known.
    """
    if not batch:
        return ""
    first = step * batch
    for event in past:
        if event.kind == RESUMED and "samples" in event.details:
            known, seen = int(event.details["step"]), int(event.details["samples"])
            first = seen + (step - known) * batch
    return f" (samples {first} to {first + batch - 1} of the order)"
