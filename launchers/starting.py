"""Starts the ranks of a node: forked from the warm process, or cold where none is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpcplat.allocation import RankPlacement, rank_variables
from hpcplat.launchplan import LaunchPlan
from hpcplat.pulse import PulseBoard
from launchers import arguments, children
from launchers.loop import Loop
from launchers.messages import Start
from launchers.recovery.keeperprocess import KeeperProcess
from launchers.warm import RankStart, WarmError, WarmProcess, python_run


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A rank that could not be started: why, and the exit code of a shell."""

    number: int
    what: str
    code: int


Started = children.Rank | NotStarted


class Starter:
    """What ranks of this node are started with.

    A plan with ``warm`` modules has a process that imports them from now on; orders
    that come before it is ready are kept until then. One that died is replaced, and
    the ranks of the moment are started cold.
    """

    def __init__(
        self,
        loop: Loop,
        plan: LaunchPlan,
        place: arguments.Arguments,
        environ: Mapping[str, str],
    ) -> None:
        self._loop, self._plan, self._place = loop, plan, place
        self._environ = dict(environ)
        self.keeper: KeeperProcess | None = None
        self.board = PulseBoard(plan.ranks_per_node)
        self._waiting: Callable[[], None] | None = None
        self._warm: WarmProcess | None = None
        if plan.warm and python_run(plan.argv):
            self._warm_up()

    def when_ready(self, action: Callable[[], None]) -> None:
        """Call ``action`` as soon as ranks can be started quickly; the last one counts."""
        if self._warm is None or self._warm.is_ready:
            action()
        else:
            self._waiting = action

    def forget(self) -> None:
        """Drop what waits."""
        self._waiting = None

    def start(self, order: Start) -> list[Started]:
        """Start the ranks of an order."""
        self.board.clear()
        if self.keeper is not None:
            self.keeper.start(order)
        ranks = [
            self._rank(order, local, number) for local, number in enumerate(order.ranks)
        ]
        if self._warm is not None:
            try:
                pids = self._warm.start_all(ranks)
            except WarmError:
                self._cool_down()
            else:
                return [
                    children.Rank(number, children.Adopted(pid), Path(rank.log))
                    for number, pid, rank in zip(order.ranks, pids, ranks, strict=True)
                ]
        return [
            self._cold(number, rank)
            for number, rank in zip(order.ranks, ranks, strict=True)
        ]

    def _cold(self, number: int, rank: RankStart) -> Started:
        log = Path(rank.log)
        try:
            process = children.start_rank(
                rank.argv, rank.environment, Path(rank.folder), log
            )
        except children.NotStartedError as error:
            return NotStarted(number, error.what, error.code)
        return children.Rank(number, process, log)

    def _rank(self, order: Start, local: int, number: int) -> RankStart:
        placement = replace(
            _placement(self._plan, self._place, order, local, number),
            pulse=Path(self.board.path),
            keeper=self.keeper.name if self.keeper else None,
        )
        environment = {**self._environ, **rank_variables(placement)}
        if order.agent_store:
            environment |= _agent_store(order)
        return RankStart(
            argv=tuple(self._plan.argv),
            environment=environment,
            folder=str(self._plan.folder or self._place.run.root),
            log=str(self._place.logs.rank_log(number)),
        )

    def _warm_up(self) -> None:
        self._warm = WarmProcess(self._plan.warm, self._environ)
        self._loop.watch(self._warm.socket, self._warm_spoke)

    def _warm_spoke(self) -> None:
        """Go on once it is ready; go on without it if it ended over its imports."""
        if self._warm is None:
            return
        self._loop.forget(self._warm.socket)
        try:
            self._warm.until_ready()
        except WarmError:
            self._warm.close()
            self._warm = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()

    def _cool_down(self) -> None:
        """Replace a warm process that died; until the new one is ready there is none."""
        if self._warm is not None:
            self._warm.close()
        self._warm_up()


def _placement(
    plan: LaunchPlan,
    place: arguments.Arguments,
    order: Start,
    local: int,
    number: int,
) -> RankPlacement:
    return RankPlacement(
        rank=number,
        world_size=order.world_size,
        local_rank=local,
        local_world_size=len(order.ranks),
        node_rank=order.node_rank,
        master_address=order.master_address,
        master_port=order.master_port,
        run_folder=place.run,
        attempt=place.attempt,
        generation=order.generation,
        job_key=plan.key,
        array_index=place.task,
        cpus_per_task=plan.cpus_per_task,
    )


def _agent_store(order: Start) -> dict[str, str]:
    """Return what tells torch that its store is served (torch.distributed.rendezvous)."""
    return {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": str(order.generation),
    }
