"""On how many nodes fewer a training can go on with less data parallelism; pure.

The global batch and the order of its samples stay: each replica takes more of it.
"""

from __future__ import annotations

from hpcplat.launchplan import Shrink
from hpcplat.parallel import Allocation, rank_map
from hpcplat.parallel_rules import broken_rules
from hpcplat.training import Training


def shrinks(training: Training) -> tuple[Shrink, ...]:
    """Return the smaller numbers of nodes that would do, the largest first."""
    whole = training.allocation
    most = whole.nodes - whole.spare_nodes
    smaller = (
        Allocation(nodes=nodes, ranks_per_node=whole.ranks_per_node)
        for nodes in range(most - 1, 0, -1)
    )
    return tuple(
        Shrink(one.nodes, _origins(training, one))
        for one in smaller
        if not broken_rules(training.plan(one))
    )


def _origins(training: Training, smaller: Allocation) -> tuple[int, ...]:
    """Return, for each rank of the smaller world, whose state it takes up.

    That of the rank with the same coordinates. None where the optimizer's state is
    split over replicas: then only a checkpoint has all of it.
    """
    if training.settings.optimizer.distributed:
        return ()
    before = {p[1:8]: p.rank for p in rank_map(training.layout, training.allocation)}
    now = rank_map(training.layout, smaller)
    return tuple(before[place[1:8]] for place in now)
