"""What is done once ranks or nodes were lost: start again, queue again, or end; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hpcplat.launchplan import LaunchPlan
from hpcplat.signals import RankExit
from launchers.messages import Ended
from launchers.recovery.generation import Generation
from launchers.verdict import Verdict, failure
from launchers.world import Member, refilled

LOST_WITHOUT_WORD: Final = Verdict(1, "Ranks lost touch, and nobody knows to whom.")


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Start the ranks again at these places."""

    places: tuple[Member, ...]
    what: str


@dataclass(frozen=True, slots=True)
class QueueAgain:
    """Have Slurm start the job anew: the nodes that are left do not suffice."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the job: another start would be in vain."""

    verdict: Verdict


Decision = StartAgain | QueueAgain | GiveUp


def decide(
    plan: LaunchPlan, now: Generation, living: Iterable[Member], failures: int
) -> Decision:
    """Return what is to be done; ``failures`` are those in a row, this one included.

    Lost nodes are not the job's fault, and count as no failure.
    """
    first = next(iter(now.failures()), None)
    if not now.lost and (failures > plan.max_failures or _is_final(plan, first)):
        return GiveUp(blamed(now, first))
    places = refilled(now.places, living)
    if places is None:
        reason = f"{', '.join(now.lost)} was lost, and there is no spare node."
        verdict = Verdict(RankExit.STOPPED_EARLY, reason, node=now.lost[0])
        return QueueAgain(verdict)
    return StartAgain(places, _new_places(now, places))


def blamed(now: Generation, first: Ended | None) -> Verdict:
    """Return the verdict on ranks that failed or hang."""
    if now.hung:
        return now.hung
    return failure(first, now.node(first.rank)) if first else LOST_WITHOUT_WORD


def _is_final(plan: LaunchPlan, first: Ended | None) -> bool:
    """Return whether to start the ranks again would be in vain."""
    if first is None:
        return False
    return bool(first.problem) or first.code in plan.final_codes


def _new_places(now: Generation, places: Sequence[Member]) -> str:
    """Say who takes whose place."""
    moves = [
        f"{new.join.node} takes the place of {old.join.node}"
        for old, new in zip(now.places, places, strict=True)
        if old is not new
    ]
    return f"{', '.join(moves) or 'The same nodes'}: the ranks are started again."
