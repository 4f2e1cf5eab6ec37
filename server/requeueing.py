"""Brings back jobs of somebody's own sbatch that say they can run again (--requeue).

No agent watches over such a job: that a node of its is dead is known when Slurm itself
finds that the node does not respond, long before it takes it for dead, and slurmd does not
answer us either. Then Slurm is told, requeues the job at once, and need not let it wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.states import BaseState
from server.database import Database
from server.deadnodes import DeadNodes
from server.hurrying import waits_after_requeue
from server.onebyone import apart
from server.queries import jobs, recovery
from server.queries.submissions import Watched
from server.site import Site
from server.states import ADOPTED, Sending

SILENT: Final = "NOT_RESPONDING"  # Slurm's flag of a node that it can't reach
DOWN: Final = frozenset({"DOWN", "FAIL"})

Hurry = Callable[[int], None]


class Requeueing:
    """All such jobs of one cluster; used by the reconcile loop, once a round."""

    def __init__(
        self,
        database: Database,
        site: Site,
        hurry: Hurry,
        nodes: DeadNodes,
    ) -> None:
        self._database, self._site = database, site
        self._hurry = hurry
        self._nodes = nodes
        self._can_run_again: dict[str, bool] = {}  # by job

    def look(
        self, watched: Sequence[Watched], live: Mapping[str, list[LiveJob]]
    ) -> int:
        """Do what is to be done for each job; returns how many moved."""
        mine = [one for one in watched if self._is_mine(one)]
        known = {one.job_id for one in mine}
        self._can_run_again = {
            job: can for job, can in self._can_run_again.items() if job in known
        }
        moved = 0
        for one in mine:
            with apart(one.job_id, "looking after"):
                if self._may_run_again(one):
                    moved += self._look_at(one, live.get(one.key, ()))
        return moved

    def _is_mine(self, one: Watched) -> bool:
        return (
            one.kind == ADOPTED and one.state == Sending.SENT and not one.cancel_asked
        )

    def _may_run_again(self, one: Watched) -> bool:
        if one.job_id not in self._can_run_again:
            with self._database.read() as session:
                job = jobs.by_id(session, one.job_id)
            asked = job.spec.get("recovery", {}) if job is not None else {}
            self._can_run_again[one.job_id] = bool(asked.get("requeue"))
        return self._can_run_again[one.job_id]

    def _look_at(self, one: Watched, records: Sequence[LiveJob]) -> int:
        """Look at a job, or all tasks of an array: a node is let go of once for all."""
        for record in records:
            if waits_after_requeue(record):
                self._hurry(one.slurm_job_id or record.job_id)
        running = [one for one in records if one.state.base is BaseState.RUNNING]
        dead = self._dead({name for record in running for name in record.nodes})
        return sum(
            self._let_go(one, [r for r in running if node in r.nodes], node)
            for node in dead
        )

    def _dead(self, names: set[str]) -> list[str]:
        """Return the nodes that Slurm can't reach, and we can't either."""
        silent = {
            node.name
            for node in self._site.facts().nodes
            if SILENT in node.flags and node.state not in DOWN
        }
        return [name for name in sorted(names & silent) if self._nodes.is_dead(name)]

    def _let_go(self, one: Watched, records: Sequence[LiveJob], node: str) -> int:
        """Set a node down: Slurm requeues what ran there. Returns 1 if it did."""
        if not self._nodes.set_down(node, f"died under job {records[0].address}"):
            return 0
        what = f"{node} died: Slurm does not reach it, and its slurmd does not answer."
        with self._database.write() as session:
            recovery.died(session, one.job_id, node, what, datetime.now(UTC), "down")
        for job in {record.array_job_id or record.job_id for record in records}:
            self._hurry(job)
        return 1
