"""The agent: one on each node of a job; starts that node's ranks and watches them.

It does what the coordinator on the batch host says, and knows nothing of the job as a
whole. What it does by itself: it keeps logs apart, tells true exit codes, and leaves
no process behind, whatever ends it.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from hpcplat.allocation import (
    NodePlace,
    RankPlacement,
    environment,
    node_place,
    rank_variables,
)
from hpcplat.errors import HpcplatError
from hpcplat.launchplan import LaunchPlan, read_plan
from launchers import arguments, children
from launchers.connection import Connection
from launchers.guard import Guard
from launchers.loop import Loop, Timer
from launchers.meeting import connect, read_meeting
from launchers.messages import Ended, Finish, Join, Message, PassSignal, Start, Stop
from launchers.ports import free_port
from launchers.secrets import secret_values

STOPPED_BY_TERM: Final = 128 + signal.SIGTERM
PASSED_ON: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


class Agent:
    """The ranks of one node, under the coordinator's orders."""

    def __init__(
        self,
        loop: Loop,
        plan: LaunchPlan,
        place: arguments.Arguments,
        environ: Mapping[str, str],
        guard: Guard,
    ) -> None:
        self._loop, self._plan, self._place = loop, plan, place
        self._guard = guard
        self._environ = dict(environ)
        self._ranks: dict[int, children.Rank] = {}
        self._generation = -1
        self._stopping: Timer | None = None
        self._leaving = False
        self._connection: Connection | None = None
        self.code = 1  # unless the coordinator says otherwise
        loop.on_signal(signal.SIGCHLD, self._reap)
        loop.on_signal(signal.SIGTERM, self._terminate)
        loop.on_signal(signal.SIGINT, self._terminate)
        loop.on_signal(signal.SIGCONT, partial(self._pass, signal.SIGCONT))
        for number in PASSED_ON:
            loop.on_signal(number, partial(self._pass, number))

    def join(self, sock: socket.socket, hello: Join) -> None:
        """Introduce ourselves to the coordinator, and wait for its orders."""
        self._connection = Connection(self._loop, sock, self._take, self._cut_off)
        self._connection.send(hello)

    def _take(self, connection: Connection, message: Message) -> None:
        match message:
            case Start():
                self._start(message)
            case PassSignal():
                self._pass(signal.Signals[message.name])
            case Stop():
                self._stop(message.grace)
            case Finish():
                self._finish(message.code)
            case _:  # for the coordinator's ears only
                connection.close()

    def _start(self, order: Start) -> None:
        self._generation = order.generation
        for local, number in enumerate(order.ranks):
            placement = self._placement(order, local, number)
            log = self._place.logs.rank_log(number)
            environ = {**self._environ, **rank_variables(placement)}
            folder = Path(self._plan.folder or self._place.run.root)
            try:
                process = children.start_rank(self._plan.argv, environ, folder, log)
            except children.NotStartedError as error:
                self._report(number, error.code, problem=error.what)
                continue
            self._guard.watch(process.pid)
            self._ranks[process.pid] = children.Rank(number, process, log)

    def _placement(self, order: Start, local: int, number: int) -> RankPlacement:
        return RankPlacement(
            rank=number,
            world_size=order.world_size,
            local_rank=local,
            local_world_size=len(order.ranks),
            node_rank=order.node_rank,
            master_address=order.master_address,
            master_port=order.master_port,
            run_folder=self._place.run,
            attempt=self._place.attempt,
            generation=order.generation,
            job_key=self._plan.key,
            array_index=self._place.task,
            cpus_per_task=self._plan.cpus_per_task,
        )

    def _reap(self) -> None:
        """Take note of every child that ended: ranks, and what they left behind."""
        while (pid := children.next_ended()) is not None:
            rank = self._ranks.pop(pid, None)
            if rank is None:
                children.reap_orphan(pid)
            else:
                code = children.reap(rank.process)
                self._guard.release(pid)
                self._report(rank.number, code, rank.log, stopped=rank.stopped)
        if self._leaving and not self._ranks:
            self._loop.stop()

    def _report(
        self,
        number: int,
        code: int,
        log: Path | None = None,
        *,
        stopped: bool = False,
        problem: str = "",
    ) -> None:
        lines = children.tail(log) if log and code else ()
        if self._connection:
            self._connection.send(
                Ended(
                    self._generation, number, code, time.time(), stopped, lines, problem
                )
            )

    def _pass(self, number: signal.Signals) -> None:
        """Pass a signal on: SIGCONT to all, a warning to those that know it."""
        for rank in self._ranks.values():
            if number is signal.SIGCONT:
                children.signal_group(rank.process, number)
            else:
                children.signal_catchers(rank.process, number)

    def _stop(self, grace: float) -> None:
        if self._stopping is None:
            self._stopping = self._loop.later(grace, self._kill)
            self._signal_all(signal.SIGTERM)

    def _kill(self) -> None:
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for rank in self._ranks.values():
            rank.stopped = True
            children.signal_group(rank.process, number)
            # A stopped process acts on no signal but KILL until it is continued.
            children.signal_group(rank.process, signal.SIGCONT)

    def _terminate(self) -> None:
        """End for Slurm (scancel, the time limit): stop the ranks, then leave."""
        self.code = STOPPED_BY_TERM
        self._leave()

    def _cut_off(self, connection: Connection) -> None:
        """Leave when the coordinator is gone: nobody would hear of these ranks."""
        self._leave()

    def _leave(self) -> None:
        self._leaving = True
        if not self._ranks:
            self._loop.stop()
        self._stop(self._plan.grace)

    def _finish(self, code: int) -> None:
        self.code = code
        self._kill()
        self._leave()


def main(words: Sequence[str]) -> int:
    """Run the agent of this node; returns the exit code that the job shall have."""
    place = arguments.parse(words)
    node = node_place()
    guard = Guard()
    children.adopt_orphans()
    plan = read_plan(place.job.plan)
    meeting = read_meeting(place.logs.meeting)
    sock, via = connect(meeting)
    secrets, problem = _secrets(plan, place)
    environ = {**environment(), **plan.variables, **secrets}
    agent = Agent(loop := Loop(), plan, place, environ, guard)
    agent.join(sock, _hello(node, meeting.word, via, problem))
    try:
        loop.run()
    finally:  # whatever ends us, even a fault of ours: leave no process behind
        children.kill_descendants()
    return agent.code


def _secrets(
    plan: LaunchPlan, place: arguments.Arguments
) -> tuple[dict[str, str], str]:
    try:
        return secret_values(plan.secrets, place.job.secrets), ""
    except HpcplatError as error:
        return {}, str(error)


def _hello(node: NodePlace, word: str, via: str, problem: str) -> Join:
    return Join(
        word=word,
        node=node.node,
        node_index=node.node_index,
        host=socket.gethostname(),
        via=via,
        port=free_port(node.job_id),
        problem=problem,
    )


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HpcplatError as error:
        print(f"hpcplat: {error}", file=sys.stderr)
        sys.exit(1)
