"""Nodes that died: each is asked, and set down, once a round for all jobs on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hpcplat.slurm.probing import slurmd_answers
from server.site import Site

Answers = Callable[[str], bool | None]


class DeadNodes:
    """What is found out about nodes within one round of the reconcile loop.

    To ask a node that is gone takes a second and more: eight jobs on it wait once.
    """

    def __init__(self, site: Site, answers: Answers | None = None) -> None:
        self._site = site
        self._answers = answers or partial(slurmd_answers, site.scheduler)
        self._dead: dict[str, bool] = {}
        self._set_down: dict[str, bool] = {}

    def new_round(self) -> None:
        """Forget it all: a node may come back, or die, at any time."""
        self._dead.clear()
        self._set_down.clear()

    def is_dead(self, node: str) -> bool:
        """Whether slurmd there takes no connection; False where nobody can tell."""
        if node not in self._dead:
            self._dead[node] = self._answers(node) is False
        return self._dead[node]

    def set_down(self, node: str, why: str) -> bool:
        """Set a node down, so that Slurm lets go of it; False where we may not."""
        if node not in self._set_down:
            self._set_down[node] = self._site.set_down(node, why)
        return self._set_down[node]
