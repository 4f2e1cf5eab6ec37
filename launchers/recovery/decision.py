"""What is done once ranks or nodes were lost: start again, queue again, or end; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hpcplat.launchplan import LaunchPlan, Shrink
from hpcplat.signals import RankExit
from launchers.messages import Ended
from launchers.recovery.blame import Crash, bad_node, pattern, pause
from launchers.recovery.generation import Generation
from launchers.verdict import Verdict, failure
from launchers.world import Member, refilled

LOST_WITHOUT_WORD: Final = Verdict(1, "Ranks lost touch, and nobody knows to whom.")


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Start the ranks again at these places, by this plan.

    ``left_out`` is a node that failed again and again; ``origins`` says whose state each
    rank takes up in a smaller world (empty: its own; None: only a checkpoint has it).
    """

    places: tuple[Member, ...]
    plan: LaunchPlan
    what: str
    left_out: str = ""
    origins: tuple[int, ...] | None = ()
    pause: float = 0.0


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
    plan: LaunchPlan,
    now: Generation,
    living: Sequence[Member],
    row: Sequence[Crash] = (),
    samples: str = "",
) -> Decision:
    """Return what is to be done; ``row`` are the failures so far, this one included.

    Lost nodes are not the job's fault, and count as no failure. ``living`` are the
    nodes that may be used, ``samples`` those of the step that failed, in words.
    """
    first = next(iter(now.failures()), None)
    if not now.lost and (len(row) > plan.max_failures or _is_final(plan, first)):
        verdict = blamed(now, first)
        return GiveUp(_with(verdict, pattern(row, samples)))
    if now.lost:
        return _without_the_lost(plan, now, living)
    return _once_more(plan, now, living, row)


def _with(verdict: Verdict, pattern: str) -> Verdict:
    """Add what failures have in common to the verdict's reason, as a sentence."""
    if not pattern:
        return verdict
    end = "" if verdict.reason.endswith((".", "!", "?", "…")) else "."
    return replace(verdict, reason=f"{verdict.reason}{end} {pattern}")


def blamed(now: Generation, first: Ended | None) -> Verdict:
    """Return the verdict on ranks that failed or hang."""
    if now.hung:
        return now.hung
    return failure(first, now.node(first.rank)) if first else LOST_WITHOUT_WORD


def crash_of(now: Generation, first: Ended | None, step: int) -> Crash:
    """Return who failed; ``step`` is the newest that all had done, as far as is known."""
    verdict = blamed(now, first)
    own = first.step if first and not now.hung else 0
    return Crash(verdict.rank, verdict.node, max(own, step))


def _once_more(
    plan: LaunchPlan, now: Generation, living: Sequence[Member], row: Sequence[Crash]
) -> Decision:
    """Start again, without a node on which ranks fail each time if there is another."""
    bad, wait = bad_node(row), pause(row)
    others = [member for member in living if member.join.node != bad]
    places = refilled(now.places, others) if bad else None
    if places is not None:
        why = f"Ranks failed {len(row)} times in a row on {bad}. "
        what = why + new_places(now, places)
        return StartAgain(places, plan, what, left_out=bad, pause=wait)
    # None can be missing: who died would have been told as lost.
    places = refilled(now.places, living) or now.places
    return StartAgain(places, plan, new_places(now, places), pause=wait)


def _without_the_lost(
    plan: LaunchPlan, now: Generation, living: Sequence[Member]
) -> Decision:
    places = refilled(now.places, living)
    if places is not None:
        return StartAgain(places, plan, new_places(now, places))
    lost = ", ".join(now.lost)
    for smaller in plan.shrinks:
        if smaller.nodes <= len(living):
            places = _fewer(now, living, smaller.nodes)
            what = (
                f"{lost} was lost, and there is no spare node: the training goes on on "
                f"{smaller.nodes} of {plan.nodes} nodes, with the same global batch."
            )
            fewer = shrunk(plan, smaller)
            return StartAgain(places, fewer, what, origins=smaller.origins or None)
    reason = f"{lost} was lost, and there is no spare node."
    return QueueAgain(Verdict(RankExit.STOPPED_EARLY, reason, node=now.lost[0]))


def _fewer(
    now: Generation, living: Collection[Member], count: int
) -> tuple[Member, ...]:
    """Return so many nodes, those that worked before first: their copies are at hand."""
    worked = [member for member in now.places if member in living]
    others = [member for member in living if member not in worked]
    return tuple([*worked, *others][:count])


def shrunk(plan: LaunchPlan, to: Shrink) -> LaunchPlan:
    """Return the plan of a smaller world; its own smaller worlds count from there."""
    place = {whole: rank for rank, whole in enumerate(to.origins)}
    below = tuple(
        Shrink(one.nodes, tuple(place[rank] for rank in one.origins) if place else ())
        for one in plan.shrinks
        if one.nodes < to.nodes
    )
    return replace(plan, nodes=to.nodes, shrinks=below)


def _is_final(plan: LaunchPlan, first: Ended | None) -> bool:
    """Return whether to start the ranks again would be in vain."""
    if first is None:
        return False
    return bool(first.problem) or first.code in plan.final_codes


def new_places(now: Generation, places: Iterable[Member]) -> str:
    """Say who takes whose place."""
    moves = [
        f"{new.join.node} takes the place of {old.join.node}"
        for old, new in zip(now.places, places, strict=True)
        if old is not new
    ]
    return f"{', '.join(moves) or 'The same nodes'}: the ranks are started again."
