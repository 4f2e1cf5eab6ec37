"""Which rank it is that hangs when none of them goes on; pure."""

from __future__ import annotations

from collections.abc import Mapping

from launchers.recovery.watch import Watch
from launchers.stacks import waits_for_others


def suspect(watch: Watch, stacks: Mapping[int, str]) -> int | None:
    """Return the rank that the others wait for; None if that can't be told.

    One whose process is stopped, or stuck in the kernel; else the one that is behind by
    a step; else the only one that does not stand in a collective.
    """
    stopped = watch.stopped()
    stuck = stopped or [rank for rank, one in watch.ranks.items() if one.state == "D"]
    if stuck:
        return stuck[0]
    steps = {rank: one.step for rank, one in watch.ranks.items()}
    behind = [rank for rank, step in steps.items() if step < max(steps.values())]
    if len(behind) == 1:
        return behind[0]
    busy = [rank for rank, stack in stacks.items() if not waits_for_others(stack)]
    return busy[0] if len(busy) == 1 else None


def hang_reason(rank: int | None, node: str, watch: Watch, after: float) -> str:
    """Say in a sentence who hangs, since when, and how one can tell."""
    said = f"No rank has done a step for {after:.1f} s (usually {watch.usual():.2f} s)"
    if rank is None:
        return f"{said}, and it can't be told which one hangs."
    letter = watch.ranks[rank].state
    how = {
        "T": ": its process is stopped",
        "t": ": a debugger holds it",
        "D": ": it is stuck in the kernel, as a rule on a file system",
    }
    return f"{said}: rank {rank} on {node} hangs{how.get(letter, '')}."
