"""A cluster on this machine, with what can be done to it while it is up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import psutil

from hpcplat.cluster import accounting, census, startup
from hpcplat.cluster.clients import Clients
from hpcplat.cluster.configuration import Layout
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.lock import locked
from hpcplat.cluster.place import Place
from hpcplat.cluster.spec import ClusterSpec
from hpcplat.cluster.status import ClusterStatus, assess
from hpcplat.cluster.teardown import remove_empty_parents, take_down
from hpcplat.errors import ConflictError, NotFoundError, UnavailableError
from hpcplat.processes import Completed

# sinfo's words for nodes that take jobs, now or when they are free.
READY = ("idle", "mixed", "allocated", "completing", "planned", "reserved")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster on this machine; get one from ``up`` or ``find``."""

    layout: Layout
    place: Place

    @property
    def spec(self) -> ClusterSpec:
        """What was asked for."""
        return self.layout.spec

    @property
    def folder(self) -> ClusterFolder:
        """Where all of it lies."""
        return self.layout.folder

    @property
    def clients(self) -> Clients:
        """Slurm's client programs."""
        return Clients(self.folder, self.place)

    def environment(self) -> dict[str, str]:
        """Return what to add to the environment, so that Slurm's programs mean it."""
        place = self.place.environment(self.folder)
        return {"SLURM_CONF": str(self.folder.slurm_conf), **place}

    def run(self, program: str, *words: str) -> Completed:
        """Run one of Slurm's client programs against it, bounded in time."""
        return self.clients.run(program, *words)

    def status(self) -> ClusterStatus:
        """Look at the daemons, and ask Slurm how the nodes are if it is up."""
        members = census.members(self.folder.path)
        is_asked = self._has_controller(members)
        states = self.clients.node_states() if is_asked else {}
        return assess(self.layout, members, states)

    def _has_controller(self, members: Sequence[census.Member]) -> bool:
        return any(member.daemon == "slurmctld" for member in members)

    def kill_node(self, node: str) -> int:
        """Kill all that a power cut would; return how many processes that were.

        The node's slurmd, its step daemons, and whatever its jobs run or left
        behind. Slurm is not told; it finds out after SlurmdTimeout.
        """
        self._require_node(node)
        return census.kill_all(partial(self._on_node, node))

    def revive_node(self, node: str, limit: float = 60.0) -> None:
        """Start the node's slurmd again and wait until Slurm counts on it.

        What is left of its old life is killed first: slurmd does not start while a
        stopped step daemon of its predecessor lives. A node whose daemon runs is
        only resumed. ``limit`` is in seconds.
        """
        self._require_node(node)
        if not self._has_controller(census.members(self.folder.path)):
            raise ConflictError(
                "slurmctld does not run, so no node can come back.",
                "Take the cluster down and bring it up again.",
            )
        if not any(member.daemon for member in self._on_node(node)):
            self.kill_node(node)
            startup.start_node(self.layout, self.place, node)
        self.await_nodes([node], limit)

    def await_nodes(self, nodes: Sequence[str], limit: float = 60.0) -> None:
        """Wait until Slurm can place jobs on the nodes; resume those it has given up.

        ``limit`` is in seconds; raises UnavailableError naming those still missing.
        """
        end = time.monotonic() + limit
        while missing := self._not_ready(nodes):
            if time.monotonic() > end:
                words = ", ".join(f"{node} ({state})" for node, state in missing)
                raise UnavailableError(
                    f"Slurm has not counted on {words} within {limit:g} s.",
                    f"See slurmctld.log and the slurmds' logs in {self.folder.logs}.",
                )
            time.sleep(0.1)

    def _not_ready(self, nodes: Sequence[str]) -> list[tuple[str, str]]:
        states = self.clients.node_states()
        missing = [
            (node, state)
            for node in nodes
            if not _is_ready(state := states.get(node, "unknown"))
        ]
        for node, state in missing:
            if state.startswith(("down", "drain")):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        return missing

    def processes_on(self, node: str) -> list[psutil.Process]:
        """Return what kill_node would kill: to freeze a node, or to look at it."""
        self._require_node(node)
        return [member.process for member in self._on_node(node)]

    def _on_node(self, node: str) -> list[census.Member]:
        everybody = census.members(self.folder.path)
        return [member for member in everybody if member.node == node]

    def _require_node(self, node: str) -> None:
        names = [one.name for one in self.spec.nodes]
        if node not in names:
            raise NotFoundError(
                f"The cluster {self.spec.name!r} has no node {node!r}.",
                f"Its nodes are {', '.join(names)}.",
            )

    def add_account(self, account: str) -> None:
        """Make an account that may use every QOS."""
        accounting.add_account(self.clients.sacctmgr, account)

    def add_user(self, user: str, account: str) -> None:
        """Give a user an association; the user's first account is the default."""
        self.place.copy_names()
        accounting.add_user(self.clients.sacctmgr, user, account)

    def down(self) -> None:
        """Kill every process of the cluster and remove its folder."""
        with locked(self.folder.lock):
            take_down(self.folder)
        remove_empty_parents(self.folder)


def _is_ready(state: str) -> bool:
    return state in READY
