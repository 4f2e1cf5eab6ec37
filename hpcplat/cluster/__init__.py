"""A real Slurm on this machine, for development, tests and the demo."""

from hpcplat.cluster.cluster import Cluster
from hpcplat.cluster.lifecycle import down, find, up
from hpcplat.cluster.spec import ClusterSpec, NodeGroup, parse_groups
from hpcplat.cluster.status import ClusterStatus, NodeStatus

__all__ = [
    "Cluster",
    "ClusterSpec",
    "ClusterStatus",
    "NodeGroup",
    "NodeStatus",
    "down",
    "find",
    "parse_groups",
    "up",
]
