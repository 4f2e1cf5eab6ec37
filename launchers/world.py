"""Who does what in an attempt: which nodes work, which ranks they get; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpcplat.launchplan import LaunchPlan
from launchers.messages import Join, Start


@dataclass(frozen=True, slots=True)
class Member:
    """A node whose agent is up: how it joined, and its address as we see it."""

    join: Join
    address: str


def working(plan: LaunchPlan, members: Iterable[Member]) -> tuple[Member, ...]:
    """Return the members that work, in rank order; the others stand by.

    The first nodes of the allocation work; where one is missing, the next takes over.
    """
    ordered = sorted(members, key=lambda member: member.join.node_index)
    return tuple(ordered[: plan.nodes])


def refilled(
    before: tuple[Member, ...], members: Iterable[Member]
) -> tuple[Member, ...] | None:
    """Return who works once members are gone: survivors stay, others fill the gaps.

    None when there are not enough.
    """
    living = sorted(members, key=lambda member: member.join.node_index)
    idle = iter([member for member in living if member not in before])
    found = [one if one in living else next(idle, None) for one in before]
    chosen = tuple(one for one in found if one is not None)
    return chosen if len(chosen) == len(before) else None


def starts(
    plan: LaunchPlan,
    members: tuple[Member, ...],
    host: str,
    generation: int,
    store_port: int | None = None,
) -> dict[str, Start]:
    """Return each working node's order: its ranks, in blocks of one node each.

    ``host`` is the coordinator's own machine, where a store listens at ``store_port``
    if there is one: each node reaches it as it reached the coordinator. Megatron's
    order puts neighbouring ranks on one node, and the rank map was made on that ground.
    """
    address = master_address(members, host)
    per_node = plan.ranks_per_node
    return {
        member.join.node: Start(
            generation=generation,
            ranks=tuple(range(index * per_node, (index + 1) * per_node)),
            world_size=plan.world,
            node_rank=index,
            master_address=address if store_port is None else member.join.via,
            master_port=store_port or members[0].join.port,
            agent_store=store_port is not None,
        )
        for index, member in enumerate(members)
    }


def master_address(members: tuple[Member, ...], host: str) -> str:
    """Return where rank 0's node is reached by the others.

    Another host than the coordinator's is seen from here by its address. Our own is
    known to others by whatever led them here; alone, by what led our own agent here.
    """
    first = members[0]
    if first.join.host != host:
        return first.address
    others = (member.join.via for member in members if member.join.host != host)
    return next(others, first.join.via)


def node_of(rank: int, orders: Mapping[str, Start]) -> str:
    """Return the node that a rank was given to."""
    found = (node for node, order in orders.items() if rank in order.ranks)
    return next(found, "an unknown node")
