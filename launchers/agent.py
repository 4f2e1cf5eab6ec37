"""The agent: one on each node of a job; starts that node's ranks and watches them.

It does what the coordinator on the batch host says, and knows nothing of the job as a
whole. What it does by itself: it keeps logs apart, tells true exit codes, and leaves
no process behind, whatever ends it.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from hpcplat import entrypoint
from hpcplat.allocation import (
    NodePlace,
    environment,
    node_place,
)
from hpcplat.errors import HpcplatError
from hpcplat.launchplan import LaunchPlan, read_plan
from launchers import arguments, children, stacks
from launchers.connection import Connection
from launchers.guard import Guard
from launchers.loop import Loop, Timer
from launchers.meeting import connect, read_meeting
from launchers.messages import (
    Beacon,
    Ended,
    Finish,
    Halt,
    Inventory,
    Join,
    Look,
    Message,
    PassSignal,
    Stacks,
    Start,
    Stop,
)
from launchers.observing import Observer
from launchers.ports import free_port
from launchers.recovery.beacons import tell_cut_off
from launchers.recovery.keeperprocess import KeeperProcess
from launchers.secrets import secret_values
from launchers.starting import NotStarted, Starter

STOPPED_BY_TERM: Final = 128 + signal.SIGTERM
KILLED: Final = 128 + signal.SIGKILL
BEACON_SECONDS: Final = 0.5
STACK_SECONDS: Final = 0.3  # for a rank to write its stacks
STAY_SECONDS: Final = 60.0  # without a coordinator, for Slurm to end us
YOUNG_SECONDS: Final = 0.05  # until the first step after a start
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
        self._starter = Starter(loop, plan, place, environ)
        self._awaited: tuple[int, ...] = ()  # ranks that are not started yet
        self._ranks: dict[int, children.Rank] = {}
        self._generation, self._first = -1, 0
        self._kills = children.memory_kills()
        self._halted: int | None = None  # the generation whose copies are asked for
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
        if self._plan.copies:
            self._starter.keeper = KeeperProcess(self._loop, hello.word)
            hello = replace(hello, keeper=self._starter.keeper.port)
        self._connection = Connection(self._loop, sock, self._take, self._cut_off)
        self._connection.send(hello)
        self._beacon()

    def _take(self, connection: Connection, message: Message) -> None:
        match message:
            case Start():
                self._start(message)
            case Halt():
                self._halt(message.generation)
            case Look():
                self._look(message.generation)
            case PassSignal():
                self._pass(signal.Signals[message.name])
            case Stop():
                self._stop(message.grace)
            case Finish():
                self._finish(message.code)
            case _:  # for the coordinator's ears only
                connection.close()

    def _start(self, order: Start) -> None:
        self._generation, self._first = order.generation, order.ranks[0]
        self._awaited = order.ranks
        self._starter.when_ready(partial(self._start_ranks, order))

    def _start_ranks(self, order: Start) -> None:
        self._awaited = ()
        for started in self._starter.start(order):
            if isinstance(started, NotStarted):
                self._report(started.number, started.code, problem=started.what)
                continue
            self._guard.watch(started.process.pid)
            self._ranks[started.process.pid] = started

    def _beacon(self) -> None:
        """Tell of ourselves and our ranks, now and from time to time."""
        beacon = self._tell_beats()
        is_young = bool(beacon.ranks) and not all(beacon.steps)
        pause = YOUNG_SECONDS if is_young else BEACON_SECONDS
        self._loop.later(pause, self._beacon)

    def _tell_beats(self) -> Beacon:
        beacon = self._beats()
        if self._connection is not None:
            self._connection.send(beacon)
        return beacon

    def _beats(self) -> Beacon:
        ranks = sorted(self._ranks.values(), key=lambda rank: rank.number)
        board, first = self._starter.board, self._first
        beats = [board.read(rank.number - first) for rank in ranks]
        now = time.monotonic()
        return Beacon(
            self._generation,
            tuple(rank.number for rank in ranks),
            tuple(beat.step for beat in beats),
            tuple(beat.phase for beat in beats),
            tuple(round(now - beat.time, 4) for beat in beats),
            tuple(children.state(rank.process.pid) for rank in ranks),
            tuple(round(beat.own, 4) for beat in beats),
        )

    def _look(self, generation: int) -> None:
        """Have the ranks say where they stand: they write it into their logs."""
        if generation != self._generation:
            return
        ends = {}
        for rank in self._ranks.values():
            ends[rank.number] = children.log_end(rank.log)
            children.signal_catchers(rank.process, stacks.SIGNAL)
        self._loop.later(STACK_SECONDS, partial(self._tell_stacks, generation, ends))

    def _tell_stacks(self, generation: int, ends: Mapping[int, int]) -> None:
        texts = {}
        for number, end in ends.items():
            log = self._place.logs.rank_log(number)
            texts[number] = stacks.main_stack(children.log_from(log, end))
        if self._connection is not None and generation == self._generation:
            self._connection.send(
                Stacks(generation, tuple(texts), tuple(texts.values()))
            )

    def _halt(self, generation: int) -> None:
        """End all ranks at once, to start others: nothing of theirs is waited for."""
        self._halted = generation
        if generation == self._generation:
            self._drop_awaited()
            self._kill()
        self._tell_copies()

    def _tell_copies(self) -> None:
        """Tell what our keeper holds, once none of our ranks can add to it."""
        keeper, generation = self._starter.keeper, self._halted
        if keeper is None or generation is None or self._ranks:
            return
        self._halted = None
        keeper.listing(partial(self._inventory, generation))

    def _inventory(self, generation: int, held: Sequence[tuple[int, int]]) -> None:
        ranks = tuple(rank for rank, _ in held)
        steps = tuple(step for _, step in held)
        if self._connection is not None:
            self._connection.send(Inventory(generation, ranks, steps))

    def _drop_awaited(self) -> None:
        """Start no ranks of an order that still waits for the warm process."""
        self._starter.forget()
        awaited, self._awaited = self._awaited, ()
        for number in awaited:
            self._report(number, STOPPED_BY_TERM, stopped=True)

    def _reap(self) -> None:
        """Take note of every child that ended: ranks, and what they left behind.

        Their last beats go ahead: the steps since the last beacon were done too.
        """
        self._tell_beats()
        while (pid := children.next_ended()) is not None:
            rank = self._ranks.pop(pid, None)
            if rank is None:
                children.reap_orphan(pid)
            else:
                code = children.reap(rank.process)
                self._guard.release(pid)
                self._report(rank.number, code, rank.log, stopped=rank.stopped)
        self._tell_copies()
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
            kills = children.memory_kills()
            memory, self._kills = kills > self._kills, kills
            self._connection.send(
                Ended(
                    self._generation,
                    number,
                    code,
                    time.time(),
                    stopped,
                    lines,
                    problem,
                    memory and code == KILLED,
                    self._starter.board.read(number - self._first).step,
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
            self._drop_awaited()
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
        """End the ranks when the coordinator is gone: nobody would hear of them.

        If the job can go on elsewhere, we stay until Slurm ends us. A node that has a
        step to end tells slurmctld itself when it is done with the job; one that has
        none answers the order to end it, and slurmctld takes in no answer to that order
        before it gave up on reaching the dead node, ten seconds later (slurmd's
        ALREADY_COMPLETE, in Slurm 22.05's log at debug2).
        """
        if not self._plan.recovers or self._leaving:
            self._leave()
            return
        self._drop_awaited()
        self._kill()
        tell_cut_off(self._place.run.beacon)
        self._loop.later(STAY_SECONDS, self._leave)

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
    observer = Observer(place, node)
    environ = {**environment(), **plan.variables, **secrets}
    environ = {**observer.offered(environ), **environ}
    agent = Agent(loop := Loop(), plan, place, environ, guard)
    agent.join(sock, _hello(node, meeting.word, via, problem))
    observer.start()
    try:
        loop.run()
        observer.end()
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
        switch=node.switch,
        problem=problem,
    )


if __name__ == "__main__":
    entrypoint.run(main)
