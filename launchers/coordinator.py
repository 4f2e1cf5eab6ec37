"""The coordinator of an attempt: runs on the batch host, beside srun's agents.

The batch script starts it with srun's words after ``--``. It lets the agents in, gives
each its ranks, hears how they end, and says what the attempt came to: one exit code
for the batch script and every agent, and the reason in the run folder's event log.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from hpcplat import beacon, entrypoint
from hpcplat.eventlog import EventKind
from hpcplat.files import write_whole
from hpcplat.launchplan import read_plan
from launchers import arguments, children, ending
from launchers.attempt import Attempt
from launchers.launching import Launching
from launchers.loop import Loop
from launchers.meeting import Meeting, write_meeting
from launchers.messages import (
    Beacon,
    Ended,
    Finish,
    Inventory,
    Message,
    PassSignal,
    Stacks,
    Stop,
)
from launchers.ports import own_addresses
from launchers.recovery.beacons import BeaconWriter, last_words
from launchers.recovery.buddies import Held, newest_common
from launchers.recovery.decision import (
    Decision,
    GiveUp,
    QueueAgain,
    StartAgain,
)
from launchers.recovery.failures import Failures
from launchers.recovery.generation import Generation, all_stopped_early, is_failure
from launchers.recovery.hangwatch import HangWatch
from launchers.recovery.queueing import Queueing
from launchers.recovery.regrouping import Regrouping, Trouble
from launchers.recovery.slowwatch import SlowWatch
from launchers.recovery.stepping import Stepping
from launchers.roster import Roster
from launchers.secrets import remove
from launchers.srun import Srun
from launchers.verdict import Verdict
from launchers.world import Member, working

JOIN_SECONDS: Final = 120.0
LEAVE_SECONDS: Final = 5.0
GONE_SECONDS: Final = 0.5  # for agents to leave, where srun waits for the dead anyway
TICK_SECONDS: Final = 0.25
AWAY_SECONDS: Final = 1.0  # a tick that comes so late: we were away ourselves


class Coordinator:
    """One attempt: its agents, its ranks, its end."""

    def __init__(self, loop: Loop, attempt: Attempt) -> None:
        plan, place = attempt.plan, attempt.place
        self._loop, self._attempt = loop, attempt
        self._plan, self._place = plan, place
        self._roster = Roster(loop, self)
        self._srun = Srun(loop, place.beside, self._srun_ended)
        self._launching = Launching(attempt, loop, self._roster)
        self._beacons = BeaconWriter(place.run.beacon)
        self._stepping = Stepping(attempt)
        self._hangs = HangWatch(
            attempt, loop, self._roster, self._is_current, self._hung
        )
        self._slow = SlowWatch(attempt)
        self._regrouping = Regrouping(
            loop, self._roster, self._decide, copies=plan.copies
        )
        self._queueing = Queueing(attempt, loop, self._end)
        self._gone: set[str] = set()
        self._failures = Failures(attempt, self._roster)
        self._ticked = time.monotonic()
        self._verdict: Verdict | None = None
        self._stopping = self._warned = self._waited = False
        self.code = 1

    def begin(self) -> None:
        """Listen, write down where, and start the agents."""
        self._loop.on_signal(signal.SIGTERM, self._terminate)
        self._loop.on_signal(signal.SIGINT, self._terminate)
        self._loop.on_signal(signal.SIGUSR2, self._warn)
        self._loop.on_signal(signal.SIGCONT, partial(self._tell, "SIGCONT"))
        self._roster.open()
        roster, host = self._roster, self._attempt.host
        meeting = Meeting(host, own_addresses(), roster.port, roster.word)
        write_meeting(self._place.logs.meeting, meeting)
        before = last_words(self._place.run.beacon, self._place.attempt)
        what = f"Attempt on {host} began."
        self._attempt.tell(EventKind.ATTEMPT_STARTED, what, **before)
        self._launching.begin(self._start_if_ready)
        self._srun.begin()
        self._loop.later(JOIN_SECONDS, self._start_without)
        self._tick()

    # --- agents come ------------------------------------------------------------

    def joined(self, member: Member) -> Message | None:
        """Start the ranks once enough agents came; one may come too late."""
        join = member.join
        if self._verdict is not None:
            return Finish(self._verdict.code)
        if join.problem:
            self._end(Verdict(1, f"{join.node}: {join.problem}", node=join.node))
        else:
            self._start_if_ready()
        return None

    def _start_without(self) -> None:
        """Start with the nodes that came, if they are enough."""
        if self._generation or self._verdict:
            return
        if len(self._roster) >= self._plan.nodes:
            self._waited = True
            self._start_if_ready()
            return
        came = len(self._roster)
        wanted = self._plan.nodes + self._plan.spare_nodes
        reason = f"Only {came} of {wanted} nodes came up in {JOIN_SECONDS:g} s."
        self._end(Verdict(1, reason))

    def _start_if_ready(self) -> None:
        """Start the ranks once all nodes came, or enough of them in time."""
        if self._generation or self._verdict or self._stopping:
            return
        wanted = self._plan.nodes
        if not self._waited:
            wanted += self._plan.spare_nodes
        if len(self._roster) >= wanted and self._launching.is_ready:
            if not self._plan.keep_secrets:
                remove(self._place.job.secrets)  # every agent has read it by now
            usable = self._failures.usable(self._plan.nodes)
            self._launch(working(self._plan, usable))

    def _launch(
        self,
        places: tuple[Member, ...],
        held: Held = MappingProxyType({}),
        resume: int = -1,
        origins: Sequence[int] = (),
    ) -> None:
        self._launching.launch(places, held, resume, origins)
        self._stepping.begin_anew(self._launching.plan.world)

    @property
    def _generation(self) -> Generation | None:
        return self._launching.newest

    # --- what agents say --------------------------------------------------------

    def said(self, member: Member, news: Message) -> None:
        """Take note of news of the newest ranks; those of ranks given up are old."""
        match news:
            case Ended():
                self._rank_ended(news)
            case Beacon():
                self._beat(news)
            case Inventory():
                self._regrouping.take(member.join.node, news)
            case Stacks():
                self._hangs.take(news)

    def _beat(self, news: Beacon) -> None:
        now = self._generation
        if now is None or news.generation != now.number:
            return
        if self._regrouping.is_on:  # last beats of ranks that are being ended
            self._stepping.watch.take(news, time.monotonic())
            return
        self._stepping.take(news, now)
        self._slow.look(now, self._stepping.watch, self._plan.stages)
        self._failures.passed(self._stepping.watch.step())

    def _rank_ended(self, end: Ended) -> None:
        now = self._generation
        if now is None or end.generation != now.number:
            return
        now.ends[end.rank] = end
        if is_failure(end):
            self._rank_failed(now, end)
        if self._regrouping.is_on:
            self._regrouping.look()
        elif len(now.ends) == self._launching.plan.world:
            self._conclude()

    def _rank_failed(self, now: Generation, end: Ended) -> None:
        if self._may_recover():
            self._regrouping.begin(now)
            return
        self._failures.tell(now, end)
        self._stop_all()

    def lost(self, member: Member, reason: str) -> None:
        """Take note of an agent that is gone, its node with it."""
        if self._verdict or self._stopping:
            return
        node, now = member.join.node, self._generation
        self._attempt.tell(EventKind.NODE_LOST, reason, node=node)
        self._gone.add(node)
        if now is None or node not in now.orders:
            return
        now.lost.append(node)
        if self._may_recover():
            self._regrouping.begin(now)
            self._regrouping.look()
        else:
            self._end(Verdict(1, reason, node=node))

    # --- silence ----------------------------------------------------------------

    def _tick(self) -> None:
        """Look now and then for nodes that are silent and ranks that do not go on.

        If we ourselves were away (stopped, or starved), that proves nothing of others.
        """
        now = time.monotonic()
        if now - self._ticked > AWAY_SECONDS:
            self._roster.hear_anew(now)
        elif self._verdict is None and not self._stopping:
            self._roster.drop_silent(now, partial(self._is_at_work, now))
            if self._generation and not self._regrouping.is_on:
                self._hangs.look(self._generation, self._stepping.watch)
        self._ticked = now
        self._beacons.show(self._own_beacon())
        self._loop.later(TICK_SECONDS, self._tick)

    def _own_beacon(self) -> beacon.Beacon:
        return beacon.Beacon(
            count=int(time.time() * 1000),
            attempt=self._place.attempt,
            job=self._attempt.job,
            host=self._attempt.node,
            step=self._stepping.watch.step(),
            usual=self._stepping.watch.usual(),
            lost=tuple(sorted(self._gone)),
            recovers=self._plan.recovers,
        )

    def _is_at_work(self, now: float, node: str) -> bool:
        """Whether a node's ranks must be alive: others, that need them, made a step."""
        order = self._generation.orders.get(node) if self._generation else None
        watch = self._stepping.watch
        return order is not None and watch.is_at_work(order.ranks, now)

    def _is_current(self, generation: Generation) -> bool:
        return generation is self._generation and not self._regrouping.is_on

    def _hung(self, generation: Generation, verdict: Verdict) -> None:
        """Start all again if we may."""
        if self._may_recover():
            generation.hung = verdict
            self._regrouping.begin(generation)

    # --- ranks are started again ------------------------------------------------

    def _may_recover(self) -> bool:
        return self._plan.recovers and not self._stopping and self._verdict is None

    def _decide(self, trouble: Trouble) -> None:
        """Do what is to be done once the ranks of the living nodes are gone."""
        now = trouble.generation
        self._failures.take(now, self._stepping.watch.step())
        decision = self._failures.decide(self._launching.plan, now)
        self._act(trouble, decision, is_late=False)

    def _act(self, trouble: Trouble, decision: Decision, *, is_late: bool) -> None:
        match decision:
            case GiveUp(verdict):
                self._end(verdict)
            case QueueAgain(verdict):
                self._queue_again(verdict)
            case StartAgain() if decision.pause and not is_late:
                self._loop.later(decision.pause, partial(self._act_late, trouble))
            case StartAgain():
                self._start_again(trouble, decision)

    def _act_late(self, trouble: Trouble) -> None:
        """Start again after a pause, if nothing else was decided in it."""
        if self._may_recover() and self._queueing.asked is None:
            plan, now = self._launching.plan, trouble.generation
            self._act(trouble, self._failures.decide(plan, now), is_late=True)

    def _start_again(self, trouble: Trouble, again: StartAgain) -> None:
        self._regrouping.drop()
        if again.left_out:
            self._failures.leave_out(again.left_out, again.what)
        nodes, origins = self._roster.nodes(), again.origins
        held = {node: own for node, own in trouble.held.items() if node in nodes}
        resume = -1
        if origins is not None:
            resume = newest_common(held, origins or range(again.plan.world))
        self._stepping.tell_recovering(trouble, again.what, resume)
        self._launching.plan = again.plan
        self._launch(again.places, held, resume, origins or ())

    def _queue_again(self, verdict: Verdict) -> None:
        self._queueing.ask(verdict, self._stepping.watch.furthest(), self._gone)

    # --- signals ----------------------------------------------------------------

    def _warn(self) -> None:
        self._warned = True
        self._attempt.tell(
            EventKind.SIGNAL_PASSED,
            "SIGUSR2: the time limit is near, or somebody asked for a checkpoint.",
        )
        self._tell("SIGUSR2")

    def _tell(self, name: str) -> None:
        self._roster.send_all(PassSignal(name))

    def _terminate(self) -> None:
        """Stop for Slurm: scancel, the time limit, preemption."""
        if self._stopping:
            return
        if self._queueing.asked is not None:  # Slurm does what we asked it for
            self._end(self._queueing.asked)
        elif self._generation:
            self._regrouping.drop()
            self._stop_all()
        else:  # nothing runs yet
            self._end(ending.ENDED_BY_TERM)

    def _stop_all(self) -> None:
        """Have all ranks ended; a node that does not answer is not waited for."""
        if not self._stopping:
            self._stopping = True
            self._roster.send_all(Stop(self._plan.grace))
            self._loop.later(self._plan.grace + LEAVE_SECONDS, self._conclude)

    # --- the end ----------------------------------------------------------------

    def _conclude(self) -> None:
        ends, failed = ending.ends_of(self._generation), ending.failed(self._generation)
        if self._warned and not self._stopping and all_stopped_early(ends):
            self._stopped_early()
        elif failed is not None:
            self._end(failed)
        elif self._stopping or ending.was_stopped(ends):
            self._end(ending.ENDED_BY_TERM)
        else:
            self._end(ending.outputs(self._attempt))

    def _stopped_early(self) -> None:
        """Go on in another attempt: the ranks saved their state when they were warned."""
        if self._plan.recovers:
            self._queue_again(ending.SAVED)
        else:
            self._end(ending.SAVED)

    def _end(self, verdict: Verdict) -> None:
        if self._verdict is not None:
            return
        self._verdict, self.code = verdict, verdict.code
        self._attempt.tell(
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
        self._roster.send_all(Finish(verdict.code))
        if self._srun.is_over:
            self._loop.stop()
        else:
            # srun waits a minute for nodes that died; Slurm would drain ours meanwhile.
            self._srun.end_in(GONE_SECONDS if self._gone else LEAVE_SECONDS)

    def _srun_ended(self) -> None:
        if self._verdict is None:
            self._end(self._without_srun())
        self._loop.stop()

    def _without_srun(self) -> Verdict:
        """Say why srun left before the ranks were done."""
        failed = ending.failed(self._generation)
        if failed is not None:
            return failed
        if self._stopping:
            return ending.ENDED_BY_TERM
        return self._srun.broke(self._place.logs.batch_log)


def main(words: Sequence[str]) -> int:
    """Run an attempt to its end; returns the exit code of the job."""
    place = arguments.parse(words)
    plan = read_plan(place.job.plan)
    place.logs.root.mkdir(parents=True, exist_ok=True)
    coordinator = Coordinator(loop := Loop(), Attempt.here(plan, place))
    coordinator.begin()
    try:
        loop.run()
    finally:  # whatever ends us: srun and what it started must not stay
        children.kill_descendants()
    write_whole(place.logs.exit_code, f"{coordinator.code}\n")
    return coordinator.code


if __name__ == "__main__":
    entrypoint.run(main)
