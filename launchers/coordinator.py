"""The coordinator of an attempt: runs on the batch host, beside srun's agents.

The batch script starts it with srun's words after ``--``. It lets the agents in, gives
each its ranks, hears how they end, and says what the attempt came to: one exit code
for the batch script and every agent, and the reason in the run folder's event log.
"""

from __future__ import annotations

import hmac
import secrets as randomness
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from hpcplat import beacon, eventlog
from hpcplat.allocation import environment
from hpcplat.errors import HpcplatError
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.files import write_whole
from hpcplat.launchplan import LaunchPlan, read_plan
from hpcplat.signals import RankExit
from launchers import arguments, children
from launchers.connection import Connection
from launchers.loop import Loop
from launchers.meeting import Meeting, write_meeting
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
    Stop,
)
from launchers.ports import listening, own_addresses
from launchers.recovery.beacons import BeaconWriter, last_words
from launchers.recovery.buddies import Held, newest_common, with_copies
from launchers.recovery.generation import Generation, all_stopped_early, is_failure
from launchers.recovery.hang import hang_reason, suspect
from launchers.recovery.progress import attempts_without_progress
from launchers.recovery.requeue import address, requeue
from launchers.recovery.storeprocess import StoreProcess
from launchers.recovery.watch import Watch
from launchers.secrets import remove
from launchers.verdict import Verdict, failure, first_failure, missing_outputs
from launchers.world import Member, refilled, starts, working

JOIN_SECONDS: Final = 120.0
LEAVE_SECONDS: Final = 5.0
GONE_SECONDS: Final = 0.5  # for agents to leave, where srun waits for the dead anyway
HALT_SECONDS: Final = 2.0  # from SIGKILL to the last rank's end, tens of ms as a rule
HELLO_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.25
REQUEUE_SECONDS: Final = 20.0  # until we believe that Slurm refused
AWAY_SECONDS: Final = 1.0  # a tick that comes so late: we were away ourselves
SILENT_SECONDS: Final = 2.5  # five beacons
LOOK_SECONDS: Final = 0.7  # for agents to ask their ranks where they stand
LOST_WITHOUT_WORD: Final = Verdict(1, "Ranks lost touch, and nobody knows to whom.")
ENDED_BY_TERM: Final = Verdict(128 + signal.SIGTERM, "The job was ended by SIGTERM.")


@dataclass(slots=True)
class Trouble:
    """Ranks are being ended because others were lost; since when (seconds, Unix)."""

    began: float = field(default_factory=time.time)
    is_late: bool = False
    held: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)


class Coordinator:
    """One attempt: its agents, its ranks, its end."""

    def __init__(
        self, loop: Loop, plan: LaunchPlan, place: arguments.Arguments
    ) -> None:
        self._loop, self._plan, self._place = loop, plan, place
        self._host = socket.gethostname()
        self._word = randomness.token_hex(16)
        self._server = listening()
        self._job = address(environment())
        self._node = environment().get("SLURMD_NODENAME", self._host)
        self._gone: set[str] = set()
        self._beacons = BeaconWriter(place.run.beacon)
        self._requeueing: Verdict | None = None
        self._step: subprocess.Popen[bytes] | None = None
        self._members: dict[Connection, Member] = {}
        self._generation: Generation | None = None
        self._trouble: Trouble | None = None
        self._watch = Watch(plan.world)
        self._heard: dict[Connection, float] = {}
        self._silent: set[str] = set()
        self._stacks: dict[int, str] = {}
        self._looking = False
        self._ticked = time.monotonic()
        self._recovering: float | None = None  # since when (Unix)
        self._failures = 0  # in a row, without a step between them
        self._store = StoreProcess(loop) if plan.agent_store else None
        self._verdict: Verdict | None = None
        self._stopping = self._warned = self._waited = False
        self.code = 1

    def begin(self) -> None:
        """Listen, write down where, and start the agents."""
        self._loop.on_signal(signal.SIGCHLD, self._step_ended)
        self._loop.on_signal(signal.SIGTERM, self._terminate)
        self._loop.on_signal(signal.SIGINT, self._terminate)
        self._loop.on_signal(signal.SIGUSR2, self._warn)
        self._loop.on_signal(signal.SIGCONT, partial(self._tell, "SIGCONT"))
        self._loop.watch(self._server, self._accept)
        port = self._server.getsockname()[1]
        meeting = Meeting(self._host, own_addresses(), port, self._word)
        write_meeting(self._place.logs.meeting, meeting)
        what = f"Attempt on {self._host} began."
        before = last_words(self._place.run.beacon, self._place.attempt)
        self._event(EventKind.ATTEMPT_STARTED, what, **before)
        if self._store is not None:
            self._store.begin(self._start_if_ready)
        self._step = children.start_below(self._place.beside)
        self._loop.later(JOIN_SECONDS, self._start_without)
        self._tick()

    # --- agents come ------------------------------------------------------------

    def _accept(self) -> None:
        sock, _ = self._server.accept()
        connection = Connection(self._loop, sock, self._take, self._lost)
        self._loop.later(HELLO_SECONDS, partial(self._turn_away, connection))

    def _turn_away(self, connection: Connection) -> None:
        """Close on a stranger that says nothing."""
        if connection not in self._members:
            connection.close()

    def _take(self, connection: Connection, message: Message) -> None:
        if isinstance(message, Join) and connection not in self._members:
            self._admit(connection, message)
        elif isinstance(message, Ended) and connection in self._members:
            self._rank_ended(message)
        elif isinstance(message, Beacon) and connection in self._members:
            self._beacon(connection, message)
        elif isinstance(message, Inventory) and connection in self._members:
            self._inventory(connection, message)
        elif isinstance(message, Stacks) and connection in self._members:
            self._take_stacks(message)
        else:  # a stranger, or one that talks out of turn
            connection.close()

    def _admit(self, connection: Connection, join: Join) -> None:
        if not hmac.compare_digest(join.word, self._word):
            connection.close()
            return
        self._members[connection] = Member(join, connection.peer)
        if self._verdict is not None:
            connection.send(Finish(self._verdict.code))
        elif join.problem:
            self._end(Verdict(1, f"{join.node}: {join.problem}", node=join.node))
        else:
            self._start_if_ready()

    def _start_without(self) -> None:
        """Start with the nodes that came, if they are enough."""
        if self._generation or self._verdict:
            return
        if len(self._members) >= self._plan.nodes:
            self._waited = True
            self._start_if_ready()
            return
        came = len(self._members)
        all_nodes = self._plan.nodes + self._plan.spare_nodes
        self._end(
            Verdict(
                1, f"Only {came} of {all_nodes} nodes came up in {JOIN_SECONDS:g} s."
            )
        )

    def _start_if_ready(self) -> None:
        """Start the ranks once all nodes came, or enough of them in time."""
        if self._generation or self._verdict or self._stopping:
            return
        wanted = self._plan.nodes
        if not self._waited:
            wanted += self._plan.spare_nodes
        has_store = self._store is None or self._store.port is not None
        if len(self._members) >= wanted and has_store:
            if not self._plan.keep_secrets:
                remove(self._place.job.secrets)  # every agent has read it by now
            self._launch(working(self._plan, self._members.values()), 0)

    def _launch(
        self,
        places: tuple[Member, ...],
        number: int,
        held: Held = MappingProxyType({}),
        resume: int = -1,
    ) -> None:
        """Start the ranks at these places, from the copies of step ``resume`` if any."""
        port = self._store.take() if self._store else None
        orders = starts(self._plan, places, self._host, number, port)
        if self._plan.copies:
            members = list(self._members.values())
            orders = with_copies(orders, members, self._host, held, resume)
        self._generation = Generation(number, places, orders)
        self._watch = Watch(self._plan.world)
        for connection, member in self._members.items():
            order = orders.get(member.join.node)
            if order:
                connection.send(order)
        self._event(
            EventKind.RANKS_STARTED,
            f"{self._plan.world} ranks started on {', '.join(orders)}.",
            nodes=list(orders),
            generation=number,
        )

    # --- ranks and nodes go -----------------------------------------------------

    def _rank_ended(self, end: Ended) -> None:
        now = self._generation
        if now is None or end.generation != now.number:
            return  # of ranks that were given up
        now.ends[end.rank] = end
        if is_failure(end):
            self._rank_failed(now, end)
        if self._trouble is not None:
            self._regroup(now)
        elif len(now.ends) == self._plan.world:
            self._conclude()

    def _rank_failed(self, now: Generation, end: Ended) -> None:
        if self._may_recover():
            self._begin_trouble(now)
            return
        self._tell_failure(now, end)
        self._stop_all()

    def _tell_failure(self, now: Generation, end: Ended) -> None:
        verdict = failure(end, now.node(end.rank))
        self._event(
            EventKind.RANK_FAILED,
            verdict.reason,
            rank=end.rank,
            node=verdict.node,
            code=end.code,
            tail=list(end.tail),
        )

    def _lost(self, connection: Connection) -> None:
        member = self._members.pop(connection, None)
        self._heard.pop(connection, None)
        if member is None or self._verdict or self._stopping:
            return
        node, now = member.join.node, self._generation
        reason = f"The agent of {node} is gone: its node died, or it was killed."
        if node in self._silent:
            reason = (
                f"{node} has been silent for {SILENT_SECONDS:g} s: it hangs, or died."
            )
        self._event(EventKind.NODE_LOST, reason, node=node)
        self._gone.add(node)
        if now is None or node not in now.orders:
            return
        now.lost.append(node)
        if self._may_recover():
            self._begin_trouble(now)
            self._regroup(now)
        else:
            self._end(Verdict(1, reason, node=node))

    def _beacon(self, connection: Connection, beacon: Beacon) -> None:
        self._heard[connection] = time.monotonic()
        now = self._generation
        if now is None or beacon.generation != now.number or self._trouble:
            return
        self._watch.take(beacon, time.monotonic())
        if not now.steps and self._watch.step():
            now.steps = True
            self._tell_stepping()

    def _tell_stepping(self) -> None:
        """Say that all ranks have done a step: the first, or again, and after how long."""
        since, self._recovering, self._failures = self._recovering, None, 0
        at, step = self._last_step_at(), self._watch.step()
        if since is None:
            what = f"All ranks have done a step: it is step {step}."
            self._event(EventKind.STEPPING, what, step=step, at=at)
            return
        self._event(
            EventKind.RECOVERED,
            f"All ranks have done a step again, {at - since:.2f} s after the loss.",
            seconds=at - since,
            step=step,
            at=at,
        )

    def _last_step_at(self) -> float:
        """Return when all ranks had done their newest step (Unix seconds)."""
        return time.time() - (time.monotonic() - self._watch.stepped_at())

    # --- silence ----------------------------------------------------------------

    def _tick(self) -> None:
        """Look now and then for nodes that are silent and ranks that do not go on.

        If we ourselves were away (stopped, or starved), that proves nothing of others.
        """
        now = time.monotonic()
        if now - self._ticked > AWAY_SECONDS:
            self._heard = dict.fromkeys(self._heard, now)
        elif self._verdict is None and not self._stopping:
            self._drop_silent(now)
            self._look_for_hang(now)
        self._ticked = now
        self._beacons.show(self._own_beacon())
        self._loop.later(TICK_SECONDS, self._tick)

    def _own_beacon(self) -> beacon.Beacon:
        return beacon.Beacon(
            count=int(time.time() * 1000),
            attempt=self._place.attempt,
            job=self._job,
            host=self._node,
            step=self._watch.step(),
            usual=self._watch.usual(),
            lost=tuple(sorted(self._gone)),
            recovers=self._plan.recovers,
        )

    def _drop_silent(self, now: float) -> None:
        for connection, heard in tuple(self._heard.items()):
            member = self._members.get(connection)
            if member is None or now - heard < SILENT_SECONDS:
                continue
            node = member.join.node
            order = self._generation.orders.get(node) if self._generation else None
            if order and self._watch.is_at_work(order.ranks, now):
                continue
            self._silent.add(node)
            connection.close()  # comes back to us as a lost node

    def _look_for_hang(self, now: float) -> None:
        generation = self._generation
        if generation is None or self._trouble or self._looking:
            return
        if self._watch.stalled(now):
            self._looking = True
            self._stacks = {}
            self._send_all(Look(generation.number))
            self._loop.later(LOOK_SECONDS, partial(self._name_hung, generation))

    def _take_stacks(self, found: Stacks) -> None:
        if self._generation and found.generation == self._generation.number:
            self._stacks |= dict(zip(found.ranks, found.texts, strict=True))

    def _name_hung(self, generation: Generation) -> None:
        """Say which rank hangs, and start all again if we may."""
        self._looking = False
        stalls = self._watch.stalled(time.monotonic())
        if generation is not self._generation or self._trouble or not stalls:
            return
        rank = suspect(self._watch, self._stacks)
        node = generation.node(rank) if rank is not None else ""
        after = time.monotonic() - self._watch.stepped_at()
        reason = hang_reason(rank, node, self._watch, after)
        self._event(
            EventKind.RANK_HANGS,
            reason,
            rank=rank,
            node=node,
            step=self._watch.step(),
            seconds=after,
            stack=self._stacks.get(rank, "") if rank is not None else "",
        )
        if self._may_recover():
            generation.hung = Verdict(1, reason, rank, node)
            self._begin_trouble(generation)
        else:
            self._looking = True  # said once is enough

    # --- ranks are started again ------------------------------------------------

    def _may_recover(self) -> bool:
        return self._plan.recovers and not self._stopping and self._verdict is None

    def _begin_trouble(self, now: Generation) -> None:
        """Have all other ranks ended at once: without the lost ones none can go on."""
        if self._trouble is None:
            self._trouble = Trouble()
            self._send_all(Halt(now.number))
            self._loop.later(HALT_SECONDS, partial(self._regroup_late, now.number))

    def _regroup(self, now: Generation) -> None:
        """Decide what to do once every rank of the living nodes has ended."""
        if self._trouble is None or now.left(self._nodes()):
            return
        if not self._trouble.is_late and self._awaits_copies(self._trouble):
            return
        if now.lost or now.hung or now.cause() or self._trouble.is_late:
            self._decide(now, self._trouble)

    def _inventory(self, connection: Connection, inventory: Inventory) -> None:
        now, trouble = self._generation, self._trouble
        if now is None or trouble is None or inventory.generation != now.number:
            return
        node = self._members[connection].join.node
        trouble.held[node] = tuple(zip(inventory.ranks, inventory.steps, strict=True))
        self._regroup(now)

    def _awaits_copies(self, trouble: Trouble) -> bool:
        return self._plan.copies and not self._nodes() <= trouble.held.keys()

    def _regroup_late(self, number: int) -> None:
        """Go on without those that did not answer in time."""
        now = self._generation
        if self._trouble is None or now is None or now.number != number:
            return
        self._trouble.is_late = True
        for connection, member in tuple(self._members.items()):
            if now.left({member.join.node}):
                connection.close()  # comes back to us as a lost node
        self._regroup(now)

    def _decide(self, now: Generation, trouble: Trouble) -> None:
        first = next(iter(now.failures()), None)
        if first is not None and not now.lost and not now.hung:
            self._tell_failure(now, first)
        if not now.lost:
            self._failures += 1
            verdict = now.hung or (self._failure(first) if first else LOST_WITHOUT_WORD)
            if self._failures > self._plan.max_failures or self._is_final(first):
                self._end(verdict)
                return
        places = refilled(now.places, self._members.values())
        if places is None:
            reason = f"{', '.join(now.lost)} was lost, and there is no spare node."
            self._requeue(Verdict(RankExit.STOPPED_EARLY, reason, node=now.lost[0]))
            return
        self._trouble = None
        nodes = self._nodes()
        held = {node: own for node, own in trouble.held.items() if node in nodes}
        resume = newest_common(held, self._plan.world)
        if self._recovering is None:
            self._recovering = trouble.began
        self._event(
            EventKind.RECOVERING,
            _new_places(now, places),
            lost=now.lost,
            generation=now.number + 1,
            began=trouble.began,
            copies_of_step=resume,
            last_step=self._watch.step(),
            last_at=self._last_step_at(),
            usual=self._watch.usual(),
        )
        self._launch(places, now.number + 1, held, resume)

    def _requeue(self, verdict: Verdict) -> None:
        """Have Slurm start the job anew; it ends this attempt then."""
        if self._requeueing is not None:
            return
        self._requeueing = verdict
        self._event(
            EventKind.REQUEUE_ASKED,
            f"{verdict.reason} The job goes back into the queue.",
            lost=sorted(self._gone),
            step=self._watch.step(),
        )
        past, _ = eventlog.read_all(self._place.run.events)
        if attempts_without_progress(past) >= max(self._plan.max_failures, 1):
            reason = f"{verdict.reason} No checkpoint was added in several attempts."
            self._end(replace(verdict, code=1, reason=reason))
            return
        requeue(self._job)
        self._loop.later(REQUEUE_SECONDS, partial(self._end, verdict))

    def _is_final(self, first: Ended | None) -> bool:
        """Whether to start the ranks again would be in vain."""
        if first is None:
            return False
        return bool(first.problem) or first.code in self._plan.final_codes

    def _nodes(self) -> set[str]:
        return {member.join.node for member in self._members.values()}

    # --- signals ----------------------------------------------------------------

    def _warn(self) -> None:
        self._warned = True
        self._event(
            EventKind.SIGNAL_PASSED,
            "SIGUSR2: the time limit is near, or somebody asked for a checkpoint.",
        )
        self._tell("SIGUSR2")

    def _tell(self, name: str) -> None:
        self._send_all(PassSignal(name))

    def _terminate(self) -> None:
        """Stop for Slurm: scancel, the time limit, preemption."""
        if self._stopping:
            return
        if self._requeueing is not None:  # Slurm does what we asked it for
            self._end(self._requeueing)
        elif self._generation:
            self._trouble = None
            self._stop_all()
        else:  # nothing runs yet
            self._end(ENDED_BY_TERM)

    def _stop_all(self) -> None:
        """Have all ranks ended; a node that does not answer is not waited for."""
        if not self._stopping:
            self._stopping = True
            self._send_all(Stop(self._plan.grace))
            self._loop.later(self._plan.grace + LEAVE_SECONDS, self._conclude)

    def _send_all(self, message: Message) -> None:
        for connection in tuple(self._members):
            connection.send(message)

    # --- the end ----------------------------------------------------------------

    def _conclude(self) -> None:
        ends = self._ends()
        first = first_failure(ends)
        if self._warned and not self._stopping and all_stopped_early(ends):
            self._stopped_early()
        elif first is not None:
            self._end(self._failure(first))
        elif self._stopping or any(end.stopped for end in ends):
            self._end(ENDED_BY_TERM)  # by our word, or Slurm's to the agents
        else:
            self._end(self._outputs())

    def _stopped_early(self) -> None:
        """Go on in another attempt: the ranks saved their state when they were warned."""
        verdict = Verdict(RankExit.STOPPED_EARLY, "The ranks saved and stopped early.")
        if self._plan.recovers:
            self._requeue(verdict)
        else:
            self._end(verdict)

    def _ends(self) -> list[Ended]:
        return list(self._generation.ends.values()) if self._generation else []

    def _failure(self, end: Ended) -> Verdict:
        return failure(end, self._generation.node(end.rank) if self._generation else "")

    def _outputs(self) -> Verdict:
        folder = Path(self._plan.folder or self._place.run.root)
        missing = missing_outputs(self._plan.outputs, folder)
        if not missing:
            return Verdict(0)
        reason = f"All ranks ended well, but {missing[0]} is not there."
        self._event(EventKind.OUTPUT_MISSING, reason, missing=list(missing))
        return Verdict(1, reason)

    def _end(self, verdict: Verdict) -> None:
        if self._verdict is not None:
            return
        self._verdict, self.code = verdict, verdict.code
        self._event(
            EventKind.ATTEMPT_ENDED,
            verdict.reason or "All ranks ended well.",
            code=verdict.code,
            reason=verdict.reason,
            rank=verdict.rank,
            node=verdict.node,
            tail=list(verdict.tail),
            warned=self._warned,
        )
        if verdict.code == 0 and not self._warned and self._place.task is None:
            remove(self._place.job.secrets)  # no other start will need them
        self._send_all(Finish(verdict.code))
        if self._step is None or self._step.returncode is not None:
            self._loop.stop()
        else:
            # srun waits a minute for nodes that died; Slurm would drain ours meanwhile.
            patience = GONE_SECONDS if self._gone else LEAVE_SECONDS
            self._loop.later(patience, partial(self._end_step, signal.SIGTERM))
            self._loop.later(2 * patience, partial(self._end_step, signal.SIGKILL))

    def _step_ended(self) -> None:
        if self._step is None or self._step.poll() is None:
            return
        if self._verdict is None:
            self._end(self._step_broke(self._step.returncode))
        self._loop.stop()

    def _step_broke(self, status: int) -> Verdict:
        """Say why srun left before the ranks were done."""
        first = first_failure(self._ends())
        if first is not None:
            return self._failure(first)
        if self._stopping:
            return ENDED_BY_TERM
        code = 128 - status if status < 0 else status or 1
        lines = children.tail(self._place.logs.batch_log)
        words = f" Its last line: {lines[-1]}" if lines else ""
        return Verdict(code, f"srun ended before the ranks did.{words}", tail=lines)

    def _end_step(self, number: signal.Signals) -> None:
        """End an srun that stays although all of its agents should have left."""
        if self._step and self._step.poll() is None:
            children.signal_group(self._step, number)

    def _event(self, kind: EventKind, what: str, **details: Any) -> None:  # noqa: ANN401
        event = RunEvent(kind, what, self._place.attempt, details=details)
        try:
            eventlog.append(self._place.run.events, event)
        except OSError as error:  # a full disk: the training goes on
            print(f"{what} (not in the event log: {error.strerror})", file=sys.stderr)


def _new_places(now: Generation, places: Sequence[Member]) -> str:
    """Say who takes whose place."""
    moves = [
        f"{new.join.node} takes the place of {old.join.node}"
        for old, new in zip(now.places, places, strict=True)
        if old is not new
    ]
    return f"{', '.join(moves) or 'The same nodes'}: the ranks are started again."


def main(words: Sequence[str]) -> int:
    """Run an attempt to its end; returns the exit code of the job."""
    place = arguments.parse(words)
    plan = read_plan(place.job.plan)
    place.logs.root.mkdir(parents=True, exist_ok=True)
    coordinator = Coordinator(loop := Loop(), plan, place)
    coordinator.begin()
    try:
        loop.run()
    finally:  # whatever ends us: srun and what it started must not stay
        children.kill_descendants()
    write_whole(place.logs.exit_code, f"{coordinator.code}\n")
    return coordinator.code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HpcplatError as error:
        print(f"hpcplat: {error}", file=sys.stderr)
        sys.exit(1)
