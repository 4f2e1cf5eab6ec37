"""Looks after jobs whose batch host is silent, and takes in what happens inside jobs.

Slurm notices a dead node after SlurmdTimeout (300 s as a rule), and then lets the job
wait for two minutes more. The job's own beacon tells within seconds; slurmd is asked
before anything is done: a job that is slow, or a service that slept, harms nobody.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hpcplat import beacon, eventlog
from hpcplat.beacon import Beacon
from hpcplat.errors import ForbiddenError, HpcplatError, NotFoundError
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.states import BaseState
from server import logfiles
from server.database import Database
from server.deadnodes import DeadNodes
from server.hurrying import waits_after_requeue
from server.metrics import Metrics
from server.onebyone import apart
from server.queries import recovery
from server.queries.submissions import Watched
from server.site import Site
from server.states import Sending

logger = logging.getLogger("hpcplat.recovery")

SILENT: Final = 4.0  # seconds without a new beacon, of one a second
ASK_AGAIN: Final = 1.0  # seconds, where the job's other nodes lost touch with its host
LOST_AGAIN: Final = 10.0  # seconds, where slurmd answers of a node that the job lost
TOLD: Final = frozenset(
    {
        EventKind.NODE_LOST,
        EventKind.RANK_FAILED,
        EventKind.RANK_HANGS,
        EventKind.RANK_SLOW,
        EventKind.NODE_SUSPECTED,
        EventKind.RECOVERING,
        EventKind.RECOVERED,
        EventKind.REQUEUE_ASKED,
        "resumed",
        "checkpoint-rejected",
        "checkpoint-failed",
        "rolled-back",
        "paused",
        "goes-on",
        "memory-copies-off",
    }
)

INTERRUPTIONS: Final = (
    EventKind.NODE_LOST,
    EventKind.RANK_FAILED,
    EventKind.RANK_HANGS,
    EventKind.REQUEUE_ASKED,
)

Hurry = Callable[[int], None]


@dataclass(slots=True)
class _Sight:
    """What was seen of a submission: the newest beacon, and since when it is that."""

    count: int = -1
    since: float = 0.0
    probed: float = -ASK_AGAIN  # when slurmd was asked last
    acted_on: int = -1
    warned: int = -1  # the start that was told to leave a drained node
    marked: set[str] = field(
        default_factory=set
    )  # nodes that the job lost, and are dead
    asked: dict[str, float] = field(default_factory=dict)  # when, of the others


class Recovery:
    """All jobs of one cluster; used by the reconcile loop, once a round."""

    def __init__(
        self,
        database: Database,
        site: Site,
        hurry: Hurry,
        metrics: Metrics,
        nodes: DeadNodes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database, self._site, self._hurry = database, site, hurry
        self._nodes = nodes
        self._clock, self._metrics = clock, metrics
        self._sights: dict[int, _Sight] = {}
        self._offsets: dict[str, int] = {}
        self._running: dict[int, str] = {}  # folders of jobs that run, by submission

    def look(
        self, watched: Sequence[Watched], live: Mapping[str, list[LiveJob]]
    ) -> int:
        """Do what is to be done for each job; returns how many moved."""
        moved = 0
        self._running = {}
        mine = [w for w in watched if w.state == Sending.SENT and w.kind == "train"]
        for one in mine:
            with apart(one.job_id, "looking after"):
                moved += self._take_in(one)
            for record in live.get(one.key, ()):
                with apart(one.job_id, "looking after"):
                    moved += self._look_at(one, record)
        self._forget_all_but(mine)
        return moved

    def _forget_all_but(self, mine: Sequence[Watched]) -> None:
        known = {one.submission_id for one in mine}
        self._sights = {k: s for k, s in self._sights.items() if k in known}
        named = {one.job_id for one in mine}
        self._offsets = {k: end for k, end in self._offsets.items() if k in named}

    def is_alarmed(self) -> bool:
        """Look at the beacons alone; True if Slurm should be asked now.

        A file is read for each job that runs: Slurm itself is left in peace.
        """
        now = self._clock()
        for submission, folder in tuple(self._running.items()):
            with apart(folder, "looking at the beacon of"):
                shown = self._beacon(folder)
                if shown and self._is_silent(shown, self._sights[submission], now):
                    return True
        return False

    def _is_silent(self, shown: Beacon, sight: _Sight, now: float) -> bool:
        """Take note of a beacon; True if it stands still, and nothing was done yet."""
        if shown.count != sight.count:
            sight.count, sight.since = shown.count, now
            if not shown.cut_off:
                return False
        if sight.acted_on == shown.count:
            return False
        if shown.cut_off:
            return now - sight.probed >= ASK_AGAIN
        return now - max(sight.since, sight.probed) > SILENT

    def _look_at(self, watched: Watched, record: LiveJob) -> int:
        if waits_after_requeue(record):
            self._hurry(watched.slurm_job_id or record.job_id)
        if record.state.base is not BaseState.RUNNING or watched.cancel_asked:
            return 0
        shown = self._beacon(watched.folder)
        if shown is None or not shown.recovers:
            return 0
        sight = self._sights.setdefault(watched.submission_id, _Sight())
        self._mark_lost(watched, record, shown, sight)
        self._leave_drained(watched, record, sight)
        return self._judge(watched, record, shown, sight)

    def _judge(
        self, watched: Watched, record: LiveJob, shown: Beacon, sight: _Sight
    ) -> int:
        """Act where the beacon stands still and slurmd of the batch host is gone."""
        now = self._clock()
        self._running[watched.submission_id] = watched.folder
        if not self._is_silent(shown, sight, now):
            return 0
        sight.probed = now
        host = record.batch_host or shown.host
        if not self._nodes.is_dead(host):
            return 0
        moved = self._replace(watched, record, host)
        sight.acted_on = shown.count  # now that it is done: what failed is tried again
        return moved

    # --- a dead batch host ------------------------------------------------------

    def _replace(self, watched: Watched, record: LiveJob, host: str) -> int:
        """Start the job anew without its dead batch host."""
        what = f"{host}, the batch host, is dead: no beacon of the job, and no slurmd."
        is_down = self._nodes.set_down(host, f"died under job {record.address}")
        act = self._requeue(record) if is_down else "elsewhere"
        with self._database.write() as session:
            recovery.died(session, watched.job_id, host, what, _now(), act)
            if act == "elsewhere":
                reason = f"{host} died; the job is submitted anew without it."
                recovery.send_elsewhere(session, watched, reason, _now())
        return 1

    def _requeue(self, record: LiveJob) -> str:
        try:
            self._site.scheduler.requeue(record.address)
        except HpcplatError as error:
            # Where Slurm requeued it by itself when the node was set down, it refuses.
            logger.info("requeue of %s: %s", record.address, error)
        self._hurry(record.array_job_id or record.job_id)
        return "requeued"

    def _mark_lost(
        self, watched: Watched, record: LiveJob, shown: Beacon, sight: _Sight
    ) -> None:
        """Set nodes down that the job has lost and whose slurmd is gone too.

        Nodes of its own alone: a person's program may write the beacon.
        """
        now = self._clock()
        for node in set(shown.lost).intersection(record.nodes) - sight.marked:
            if now - sight.asked.get(node, -math.inf) < LOST_AGAIN:
                continue
            sight.asked[node] = now
            if not self._nodes.is_dead(node):
                continue
            is_down = self._nodes.set_down(node, f"died under job {record.address}")
            act = "down" if is_down else "noted"
            with self._database.write() as session:
                what = f"{node} died: the job lost it, and its slurmd does not answer."
                recovery.died(session, watched.job_id, node, what, _now(), act)
            sight.marked.add(node)

    def _leave_drained(self, watched: Watched, record: LiveJob, sight: _Sight) -> None:
        """Let a job save and go on elsewhere once an admin drains a node of its."""
        if sight.warned == record.restarts:
            return  # once for each start: it may take a while to save
        nodes = {node.name: node for node in self._site.facts().nodes}
        drained = [
            name
            for name in record.nodes
            if name in nodes and "DRAIN" in nodes[name].flags
        ]
        if not drained:
            return
        self._site.scheduler.cancel(record.address, signal="USR2")
        sight.warned = record.restarts
        with self._database.write() as session:
            what = f"{drained[0]} is drained: the job saves, and goes on elsewhere."
            recovery.told(session, watched.job_id, "node-drained", what, _now())

    # --- what happens inside jobs -----------------------------------------------

    def _take_in(self, watched: Watched) -> int:
        run = RunFolder(Path(watched.folder))
        if watched.job_id not in self._offsets:
            with self._database.read() as session:
                known = recovery.offset_of(session, watched.job_id)
            self._offsets[watched.job_id] = known
        offset = self._offsets[watched.job_id]
        data = _read(run.root, run.events, offset)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == logfiles.LARGEST_PIECE:
            whole = data  # no event is as long: what is left of the line is none either
        end = offset + len(whole)
        told = [event for event in eventlog.parse(whole) if event.kind in TOLD]
        if told:
            with self._database.write() as session:
                recovery.take_in(session, watched.job_id, told, end)
        self._offsets[watched.job_id] = end  # it is written down: never read again
        for event in told:
            self._count(event)
        return len(told)

    def _count(self, event: RunEvent) -> None:
        """Let Prometheus know."""
        if event.kind in INTERRUPTIONS:
            self._metrics.failures.labels(event.kind).inc()
        elif event.kind == EventKind.RECOVERED:
            seconds = event.details.get("seconds")
            if isinstance(seconds, int | float) and 0 <= seconds < math.inf:
                self._metrics.recoveries.observe(seconds)

    def _beacon(self, folder: str) -> Beacon | None:
        run = RunFolder(Path(folder))
        return beacon.parse(_read(run.root, run.beacon, 0))


def _read(root: Path, path: Path, offset: int) -> bytes:
    """Return what a file of a run folder holds; nothing where it can't be read."""
    try:
        return logfiles.read_piece(root, path, offset).data
    except (NotFoundError, ForbiddenError):
        return b""


def _now() -> datetime:
    return datetime.now(UTC)
