"""How a cluster is: which daemons live, and what Slurm says of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpcplat.cluster.census import Member
from hpcplat.cluster.configuration import Layout

# What a cluster consists of, besides one slurmd for each node.
SERVICES = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmrestd")


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node: Slurm's word for its state, and what runs on it.

    ``pid`` is its daemon's; ``processes`` counts those of its jobs, step daemons
    included.
    """

    name: str
    state: str
    gpus: str
    is_spare: bool
    pid: int | None
    processes: int


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster as it is now; a daemon that does not run has no pid."""

    name: str
    folder: str
    version: str
    partition: str
    slurm_conf: str
    rest_url: str
    services: Mapping[str, int | None]
    nodes: tuple[NodeStatus, ...]

    @property
    def dead(self) -> tuple[str, ...]:
        """The services and nodes whose daemon does not run."""
        services = [name for name, pid in self.services.items() if pid is None]
        return (*services, *(node.name for node in self.nodes if node.pid is None))

    @property
    def works(self) -> bool:
        """Whether every service runs; single nodes may be dead."""
        return all(pid is not None for pid in self.services.values())


def assess(
    layout: Layout, members: Iterable[Member], states: Mapping[str, str]
) -> ClusterStatus:
    """Put together what the census and Slurm say."""
    everybody = list(members)
    pids = {one.daemon: one.process.pid for one in everybody if one.daemon}
    nodes = tuple(
        NodeStatus(
            name=node.name,
            state=states.get(node.name, "unknown"),
            gpus=f"{node.gpu_type}:{node.gpus}" if node.gpus else "",
            is_spare=node.is_spare,
            pid=pids.get(f"slurmd-{node.name}"),
            processes=sum(
                one.node == node.name and not one.daemon for one in everybody
            ),
        )
        for node in layout.spec.nodes
    )
    return ClusterStatus(
        name=layout.spec.name,
        folder=str(layout.folder.path),
        version=f"{layout.version[0]}.{layout.version[1]:02d}",
        partition=layout.spec.partition,
        slurm_conf=str(layout.folder.slurm_conf),
        rest_url=f"http://127.0.0.1:{layout.ports.slurmrestd}",
        services={name: pids.get(name) for name in SERVICES},
        nodes=nodes,
    )
