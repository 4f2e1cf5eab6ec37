"""Slurm's client programs, run against one cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcplat import processes
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.place import PATH, Place
from hpcplat.processes import Completed, ProgramTimeoutError

# Seconds that any one of them may take.
PATIENCE = 30.0
# Seconds that a look at the nodes may take; it is repeated where it matters.
GLANCE = 10.0


@dataclass(frozen=True, slots=True)
class Clients:
    """Calls ``sinfo``, ``sacctmgr`` and the like for the cluster in this folder."""

    folder: ClusterFolder
    place: Place

    def run(self, program: str, *words: str, timeout: float = PATIENCE) -> Completed:
        """Run one; raises ProgramTimeoutError after ``timeout`` seconds.

        The environment is a small one, so that SLURM_* and SBATCH_* around us do not
        change what the program does.
        """
        environment = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(self.folder.slurm_conf),
        }
        argv = self.place.command([program, *words])
        return processes.run(argv, timeout=timeout, env=environment)

    def sacctmgr(self, words: Sequence[str]) -> Completed:
        """Run sacctmgr."""
        return self.run("sacctmgr", *words)

    def node_states(self) -> dict[str, str]:
        """Return Slurm's word for each node's state (``idle``, ``mixed``, ``down*``).

        Empty when the controller does not answer, also when it hangs.
        """
        words = ("--noheader", "--Node", "--format=%N %T")
        try:
            done = self.run("sinfo", *words, timeout=GLANCE)
        except ProgramTimeoutError:
            return {}
        return dict(line.split() for line in done.stdout.splitlines() if done.ok)
