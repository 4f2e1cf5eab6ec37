"""A batch host that died, and what looks like one: with a small fake Slurm."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hpcplat import beacon, eventlog
from hpcplat.beacon import Beacon
from hpcplat.errors import ForbiddenError
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.slurm.states import BaseState
from server.database import Database
from server.deadnodes import DeadNodes
from server.ids import new_job_id
from server.metrics import Metrics
from server.queries import events, jobs, people, recovery, submissions
from server.queries.jobs import NewJob
from server.queries.submissions import Watched
from server.recovery import LOST_AGAIN, SILENT, Recovery
from server.site import Site
from server.states import Sending
from server.tables import Attempt
from tests.server.fakes import FakeSlurm, live_job


class World:
    """A training that runs on n1, and a clock that the test turns."""

    def __init__(self, database: Database, slurm: FakeSlurm, folder: Path) -> None:
        self.database, self.slurm = database, slurm
        self.folder = RunFolder(folder)
        self.now, self.hurried = 0.0, list[int]()
        self.answers: dict[str, bool] = {"n1": False}
        self.asked: list[str] = []
        self.live = live_job(7, BaseState.RUNNING, batch_host="n1", nodes=("n1", "n2"))
        slurm.live[7] = self.live
        self.metrics = Metrics()
        self.nodes = DeadNodes(Site(slurm), self.answer)
        self.recovery = self.started()
        self.watched = self.make_job()

    def started(self) -> Recovery:
        """Return what a service that starts anew looks after jobs with."""
        return Recovery(
            self.database,
            Site(self.slurm),
            self.hurried.append,
            self.metrics,
            self.nodes,
            clock=lambda: self.now,
        )

    def answer(self, node: str) -> bool:
        self.asked.append(node)
        return self.answers.get(node, True)

    def shine(self, count: int, **changes: object) -> None:
        shown = Beacon(count, 1, "7", "n1", step=5, recovers=True)
        beacon.write(self.folder.beacon, replace(shown, **changes))  # type: ignore[arg-type]

    def look(self, seconds: float = 0.0) -> int:
        return self.look_at([self.watched], seconds)

    def look_at(self, watched: list[Watched], seconds: float = 0.0) -> int:
        self.now += seconds
        self.nodes.new_round()
        return self.recovery.look(watched, {one.key: [self.live] for one in watched})

    def make_job(self, folder: Path | None = None) -> Watched:
        now, job_id = datetime.now(UTC), new_job_id()
        with self.database.write() as session:
            new = NewJob(
                id=job_id,
                cluster="fake",
                workspace_id=people.ensure_workspace(session, "default", now),
                user_id=people.user_id(session, "root", now),
                name="job",
                kind="train",
                spec={},
                spec_digest="",
                folder=str(folder or self.folder.root),
                partition="gpu",
                nodes=2,
                gpus=0,
                tasks=1,
                offsets=(0,),
            )
            jobs.create(session, [new], now)
        with self.database.write() as session:
            (row,) = jobs.submissions_of(session, job_id)
            row.state, row.slurm_job_id = Sending.SENT, 7
            session.add(row)
        with self.database.read() as session:
            found = submissions.in_hand(session, "fake")
        return next(one for one in found if one.job_id == job_id)

    def kinds(self) -> list[str]:
        with self.database.read() as session:
            return [e.kind for e in events.of_job(session, self.watched.job_id)]


@pytest.fixture
def world(sqlite: Database, slurm: FakeSlurm, tmp_path: Path) -> World:
    return World(sqlite, slurm, tmp_path)


def test_a_dead_batch_host_is_set_down_and_the_job_requeued(world: World) -> None:
    world.shine(1)
    world.look()
    assert world.look(SILENT + 1) == 1
    assert world.slurm.node_states == {"n1": "down"}
    assert world.slurm.requeued == ["7"]
    assert world.hurried == [7]
    assert recovery.DIED in world.kinds()
    world.look(SILENT + 1)
    assert world.slurm.requeued == ["7"]  # once is enough


def test_a_beacon_that_goes_on_harms_nobody(world: World) -> None:
    for count in range(5):
        world.shine(count)
        world.look(SILENT - 1)
    assert world.asked == []


def test_a_service_that_slept_takes_nobody_for_dead(world: World) -> None:
    world.shine(1)
    world.look()
    world.shine(2)
    world.look(3600)
    assert world.asked == []


def test_a_silent_job_on_a_node_whose_slurmd_answers_is_left_alone(
    world: World,
) -> None:
    world.answers["n1"] = True
    world.shine(1)
    world.look()
    world.look(SILENT + 1)
    assert world.asked == ["n1"]
    assert not world.slurm.requeued


def test_where_no_node_may_be_set_down_the_job_goes_elsewhere(world: World) -> None:
    world.slurm.forbids_node_states = True
    world.shine(1)
    world.look()
    world.look(SILENT + 1)
    assert not world.slurm.requeued
    assert world.kinds()[-1] == "queued"
    with world.database.read() as session:
        since = datetime.now(UTC) - timedelta(hours=1)
        assert recovery.dead_nodes(session, "fake", since) == ["n1"]


def test_a_job_that_must_not_run_twice_is_not_requeued(world: World) -> None:
    world.shine(1, recovers=False)
    world.look()
    world.look(SILENT + 1)
    assert world.asked == []


def test_a_node_that_a_job_lost_is_set_down_if_its_slurmd_is_gone(world: World) -> None:
    world.answers |= {"n2": False, "n3": False}
    world.shine(1, lost=("n2", "n3"))  # n3 is no node of this job's
    world.look()
    assert world.slurm.node_states == {"n2": "down"}
    assert not world.slurm.requeued


def test_a_job_leaves_a_drained_node_once(world: World) -> None:
    world.slurm.drained = {"n2"}
    for count in range(3):
        world.shine(count)
        world.look(1)
    assert world.slurm.signals == [("7", "USR2")]
    assert world.kinds().count("node-drained") == 1


def test_what_happens_inside_is_told_once(world: World) -> None:
    event = RunEvent(EventKind.NODE_LOST, "n2 is gone.", 1, details={"node": "n2"})
    eventlog.append(world.folder.events, event)
    eventlog.append(world.folder.events, RunEvent("checkpoint-saved", "x", 1))
    world.look()
    world.look()
    assert world.kinds().count("node-lost") == 1
    world.started().look([world.watched], {})
    assert world.kinds().count("node-lost") == 1


def test_nodes_that_died_are_counted_with_the_hours_in_which_they_did(
    world: World,
) -> None:
    now = datetime.now(UTC)
    day = timedelta(days=1)
    starts = ((now - 3 * day, now - 2 * day), (now - day, None))
    with world.database.write() as session:
        for number, (started, ended) in enumerate(starts, 1):
            session.add(
                Attempt(
                    job_id=world.watched.job_id,
                    submission_id=world.watched.submission_id,
                    cluster="fake",
                    slurm_job_id=7,
                    number=number,
                    submitted_at=started,
                    started_at=started,
                    ended_at=ended,
                    state="RUNNING",
                    nodes=["n1", "n2"],
                )
            )
        recovery.died(session, world.watched.job_id, "n1", "dead", now, "down")
    with world.database.read() as session:
        assert recovery.node_history(session, "fake", now - 90 * day, now) == (1, 96.0)
        assert recovery.node_history(session, "fake", now - 2 * day, now) == (1, 48.0)
        assert recovery.node_history(session, "else", now - 90 * day, now) == (0, 0.0)


def test_a_requeued_job_need_not_wait(world: World) -> None:
    world.live = live_job(7, reason="BeginTime", restarts=1)
    world.look()
    assert world.hurried == [7]


def test_an_alarm_needs_no_question_to_slurm(world: World) -> None:
    world.shine(1)
    world.look()
    assert not world.recovery.is_alarmed()
    world.now += SILENT + 1
    assert world.recovery.is_alarmed()
    world.shine(2)
    assert not world.recovery.is_alarmed()


def test_a_host_that_others_lost_touch_with_is_asked_for_at_once(world: World) -> None:
    world.shine(1)
    world.look()
    beacon.mark_cut_off(world.folder.beacon)
    assert world.recovery.is_alarmed()
    assert world.look() == 1
    assert world.slurm.requeued == ["7"]
    assert not world.recovery.is_alarmed()  # once is enough


def test_a_host_that_others_lost_touch_with_may_be_well(world: World) -> None:
    world.answers["n1"] = True
    world.shine(1, cut_off=True)
    for _ in range(4):
        world.look(0.5)
    assert world.asked == ["n1", "n1"]  # once a second at most
    assert not world.slurm.requeued


def test_a_coordinator_that_lives_takes_back_that_it_is_gone(world: World) -> None:
    beacon.write(world.folder.beacon, Beacon(1, 1, "7", "n1", step=5, recovers=True))
    beacon.mark_cut_off(world.folder.beacon)
    marked = beacon.parse(world.folder.beacon.read_bytes())
    assert marked == Beacon(1, 1, "7", "n1", step=5, recovers=True, cut_off=True)
    world.shine(2)
    assert not world.look()


def test_a_beacon_that_is_none_is_no_beacon() -> None:
    assert beacon.parse(b"") is None
    assert beacon.parse(b"[1]") is None
    assert beacon.parse(json.dumps({"count": 1}).encode()) is None


GOOD = {"count": 1, "attempt": 1, "job": "7", "host": "n1", "step": 5}


@pytest.mark.parametrize(
    "odd",
    [
        {"count": "1"},
        {"attempt": 1.5},
        {"job": 7},
        {"host": None},
        {"step": True},
        {"usual": "soon"},
        {"lost": [["n1"]]},
        {"lost": 3},
        {"recovers": "yes"},
        {"cut_off": 1},
    ],
)
def test_a_beacon_whose_values_are_of_other_types_is_none(
    odd: dict[str, object],
) -> None:
    assert beacon.parse(json.dumps(GOOD).encode()) is not None
    assert beacon.parse(json.dumps(GOOD | odd).encode()) is None


@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"count": NaN}', b"\xff"])
def test_a_beacon_that_is_no_json_is_none(content: bytes) -> None:
    assert beacon.parse(content) is None


def test_a_job_whose_files_are_odd_keeps_nothing_from_the_others(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = world.make_job(tmp_path / "odd")
    parse = beacon.parse

    def fail_for_odd(content: bytes) -> Beacon | None:
        if not content:
            raise ZeroDivisionError
        return parse(content)

    monkeypatch.setattr(beacon, "parse", fail_for_odd)
    world.shine(1)
    world.look_at([odd, world.watched])
    assert world.look_at([odd, world.watched], SILENT + 1) == 1
    assert world.slurm.requeued == ["7"]


def test_events_that_a_program_made_up_are_skipped_or_cut(world: World) -> None:
    made_up = [
        {"kind": ["node-lost"], "what": "a", "attempt": 1},
        {"kind": "node-lost", "what": 5, "attempt": 1},
        {"kind": "node-lost", "what": "b", "attempt": 1, "time": 1e30},
        {"kind": "node-lost", "what": "c", "attempt": 1, "time": "now"},
        {"kind": "node-lost", "what": "d", "attempt": 1, "details": []},
        {"kind": "recovered", "what": "e", "attempt": 1, "details": {"seconds": "x"}},
        {"kind": "resumed", "what": "f\0\ud800\x1b[2J", "attempt": 1}
        | {"details": {"a": 10**400, "b": [[[1]]], "c": "\0", "d": [1, "n1"]}},
    ]
    lines = [json.dumps(one).encode() for one in made_up]
    lines += [b"[" * 200_000, b'{"kind": "resumed", "what": "g", "attempt": NaN}']
    lines += [b'{"kind":"resumed","what":"h","attempt":1,"details":{"a":1e400}}']
    world.folder.events.write_bytes(b"\n".join([*lines, b""]))
    assert world.look() == 3
    with world.database.read() as session:
        told = events.of_job(session, world.watched.job_id)[-3:]
    assert [one.reason for one in told] == ["e", "f   [2J", "h"]
    assert [one.data.get("a") for one in told] == [None, None, None]
    assert told[1].data["d"] == [1, "n1"]
    assert not {"b", "c"} & told[1].data.keys()


def test_a_line_without_end_hides_no_later_event(world: World) -> None:
    world.folder.events.write_bytes(b"x" * 600_000 + b"\n")
    eventlog.append(world.folder.events, RunEvent("resumed", "It goes on.", 1))
    for _ in range(4):
        world.look()
    assert world.kinds()[-1] == "resumed"


def test_an_event_that_could_not_be_written_down_is_told_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventlog.append(world.folder.events, RunEvent("resumed", "It goes on.", 1))
    with monkeypatch.context() as broken:
        broken.setattr(recovery, "take_in", _fail)
        world.look()
    assert "resumed" not in world.kinds()
    world.look()
    assert world.kinds()[-1] == "resumed"


def test_a_host_that_could_not_be_left_is_left_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.slurm.forbids_node_states = True
    world.shine(1)
    world.look()
    with monkeypatch.context() as broken:
        broken.setattr(recovery, "send_elsewhere", _fail)
        world.look(SILENT + 1)
    assert world.kinds()[-1] != "queued"
    world.look(SILENT + 1)
    assert world.kinds()[-1] == "queued"


def test_a_drained_job_is_told_again_where_slurm_did_not_take_the_signal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ForbiddenError("Not now.", "Later.")

    world.slurm.drained = {"n2"}
    world.shine(1)
    with monkeypatch.context() as broken:
        broken.setattr(world.slurm, "cancel", refuse)
        world.look()
    assert world.slurm.signals == []
    world.look(1)
    assert world.slurm.signals == [("7", "USR2")]


def test_a_lost_node_whose_slurmd_answers_is_asked_again(world: World) -> None:
    world.shine(1, lost=("n2",))
    world.look()
    world.shine(2, lost=("n2",))
    world.look(LOST_AGAIN / 2)
    assert world.asked == ["n2"]
    world.answers["n2"] = False
    world.shine(3, lost=("n2",))
    world.look(LOST_AGAIN)
    assert world.slurm.node_states == {"n2": "down"}


def test_a_dead_node_is_asked_once_a_round_for_all_its_jobs(
    world: World, tmp_path: Path
) -> None:
    both = [world.watched, world.make_job(tmp_path / "other")]
    for one in both:
        run = RunFolder(Path(one.folder))
        run.root.mkdir(exist_ok=True)
        beacon.write(run.beacon, Beacon(1, 1, "7", "n1", step=5, recovers=True))
    world.look_at(both)
    assert world.look_at(both, SILENT + 1) == 2
    assert world.asked == ["n1"]


def test_a_job_that_is_to_be_cancelled_goes_nowhere(world: World) -> None:
    with world.database.write() as session:
        jobs.locked(session, world.watched.job_id).cancel_asked = True
        now = datetime.now(UTC)
        recovery.send_elsewhere(session, world.watched, "n1 died.", now)
    assert world.kinds() == ["created"]


def _fail(*_: object) -> None:
    raise ZeroDivisionError
