"""On which other node a node's ranks keep their copies; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from launchers.messages import Start
from launchers.world import Member

Held = Mapping[str, Sequence[tuple[int, int]]]


def buddy(
    places: Sequence[Member], index: int, others: Sequence[Member] = ()
) -> Member | None:
    """Return the node that holds copies for the ranks at ``places[index]``.

    The next working node, in a ring; one on another switch where switches are known
    and there is one. A lone working node turns to a spare (``others``); None alone.
    """
    own = places[index]
    ring = [*places[index + 1 :], *places[:index]] or list(others)
    apart = (m for m in ring if m.join.switch != own.join.switch)
    return next(apart, ring[0] if ring else None)


def newest_common(held: Held, ranks: Collection[int]) -> int:
    """Return the newest step of which each of the ranks has a copy on some node; or -1.

    ``held`` maps a node to its (rank, step) pairs.
    """
    by_step: dict[int, set[int]] = {}
    for pairs in held.values():
        for rank, step in pairs:
            by_step.setdefault(step, set()).add(rank)
    whole = [step for step, found in by_step.items() if found >= set(ranks)]
    return max(whole, default=-1)


def holder(held: Held, rank: int, step: int, first: str) -> str | None:
    """Return a node that has a rank's copy of a step: ``first`` if it has one."""
    nodes = [node for node, pairs in held.items() if (rank, step) in pairs]
    if first in nodes:
        return first
    return nodes[0] if nodes else None


def reach(there: Member, here: Member, host: str) -> str:
    """Return the address by which one node reaches another.

    ``host`` is the coordinator's machine: others know it by what led them to it.
    """
    if there.join.host == here.join.host:
        return "127.0.0.1"
    return here.join.via if there.join.host == host else there.address


def with_copies(
    orders: Mapping[str, Start], members: Sequence[Member], host: str, held: Held
) -> dict[str, Start]:
    """Return the orders with where copies go, and where those to go on from are."""
    by_node = {member.join.node: member for member in members}
    places = [by_node[node] for node in orders]
    spares = [member for member in members if member not in places]
    found = {}
    for index, (node, order) in enumerate(orders.items()):
        here, other = by_node[node], buddy(places, index, spares)
        sources = []
        for origin in order.origins or order.ranks:
            source = holder(held, origin, order.resume, node)
            if source is not None and source != node:
                there = by_node[source]
                sources.append((origin, reach(there, here, host), there.join.keeper))
        found[node] = replace(
            order,
            buddy=(reach(other, here, host), other.join.keeper) if other else (),
            sources=tuple(sources),
        )
    return found


def going_on(
    orders: Mapping[str, Start], resume: int, origins: Sequence[int]
) -> dict[str, Start]:
    """Return the orders with the step to go on from, and whose copy each rank takes up.

    ``origins`` is by rank; empty: each its own.
    """
    return {
        node: replace(
            order,
            resume=resume,
            origins=tuple(origins[rank] for rank in order.ranks) if origins else (),
        )
        for node, order in orders.items()
    }
