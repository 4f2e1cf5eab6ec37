"""What the demo came to: pure numbers from a run's history, and words for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcplat.tracking.curves import History


@dataclass(frozen=True, slots=True)
class Recovery:
    """One failure as the run's own records show it.

    ``detected`` and ``training`` are seconds after the kill: until the coordinator knew,
    and until a step that had not been done before was done. ``redone`` counts steps that
    had to be done again; ``same_bits`` says whether they came out the same; ``source`` is
    where the state came from, in the run's own words.
    """

    node: str
    spare: str
    source: str
    detected: float
    training: float
    redone: int
    same_bits: bool


@dataclass(frozen=True, slots=True)
class PlainSlurm:
    """What Slurm by itself takes at least, in seconds, as its settings stand."""

    timeout: float  # SlurmdTimeout: until a silent node is set down
    delay: float  # from the requeue to the earliest new start

    @property
    def seconds(self) -> float:
        """Return the time before anything can start again."""
        return self.timeout + self.delay


def redone_steps(logged: History) -> tuple[int, bool]:
    """Return how many steps were done twice, and whether their losses agree in bits."""
    curve = logged.curve("loss")
    newest = {point.step: point.value for point in curve.points}
    same = all(newest[point.step] == point.value for point in curve.superseded)
    return len(curve.superseded), same


def first_new_step_after(logged: History, moment: float) -> float | None:
    """Return when the first step that was not done by ``moment`` was done (Unix time).

    None if there is none.
    """
    curve = logged.curve("loss")
    every = [*curve.points, *curve.superseded]
    done = max((point.step for point in every if point.time <= moment), default=0)
    later = [point.time for point in curve.points if point.step > done]
    return min(later, default=None)


def weights_digest(manifest: Mapping[str, Any]) -> str:
    """Return one digest of a checkpoint's parameters and optimizer state.

    Of the sorted keys and digests of its tensors: the same bits, the same digest,
    whatever the layout that wrote them.
    """
    tensors = manifest["tensors"]
    told = sorted((key, entry["digest"]) for key, entry in tensors.items())
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def recovery_lines(found: Recovery, plain: PlainSlurm) -> Iterator[str]:
    """Yield the report of a failure."""
    yield f"{found.node} died; {found.spare} took its place."
    yield f"Noticed {found.detected:.2f} s after the kill; a new step after {found.training:.2f} s."
    yield found.source
    if found.redone == 0:
        yield "Steps lost: none."
    else:
        bits = "with the same bits" if found.same_bits else "WITH OTHER BITS"
        yield f"Steps done again: {found.redone}, {bits}."
    yield f"By Slurm alone: {plain.seconds:.0f} s before anything starts again,"
    yield f"  {plain.timeout:.0f} s until it takes a silent node for dead, and"
    yield f"  {plain.delay:.0f} s that a requeued job waits; then from the last checkpoint."
