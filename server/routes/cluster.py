"""/api/v1/nodes and /partitions: the cluster as Slurm tells it, some seconds old."""

from __future__ import annotations

from fastapi import APIRouter

from server.dependencies import Asking, Serving
from server.schemas import NodeAnswer, NodeList, PartitionAnswer, PartitionList

router = APIRouter(tags=["cluster"])


@router.get("/nodes", summary="List nodes")
def nodes(serving: Serving, _asking: Asking) -> NodeList:
    """Return each node with its GPUs, and how many of them are in use."""
    found = serving.site.facts().nodes
    return NodeList(
        cluster=serving.site.name,
        nodes=[NodeAnswer.model_validate(_lists(node)) for node in found],
    )


@router.get("/partitions", summary="List partitions")
def partitions(serving: Serving, _asking: Asking) -> PartitionList:
    """Return each partition with its limits."""
    return PartitionList(
        cluster=serving.site.name,
        partitions=[
            PartitionAnswer(
                name=one.name,
                is_default=one.is_default,
                state=one.state,
                nodes=list(one.nodes),
                max_time_seconds=one.max_time.total_seconds() if one.max_time else None,
                default_time_seconds=(
                    one.default_time.total_seconds() if one.default_time else None
                ),
                max_nodes=one.max_nodes,
            )
            for one in serving.site.facts().partitions
        ],
    )


def _lists(node: object) -> dict[str, object]:
    fields = {name: getattr(node, name) for name in NodeAnswer.model_fields}
    return {
        name: sorted(value) if isinstance(value, frozenset | tuple) else value
        for name, value in fields.items()
    }
