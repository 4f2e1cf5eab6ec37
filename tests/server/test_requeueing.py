"""Jobs of somebody's own sbatch whose node died: brought back, where they say they can."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from hpcplat.ids import new_job_id, submission_key
from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.states import BaseState
from server import adoption
from server.adoption import SbatchCall
from server.database import Database
from server.deadnodes import DeadNodes
from server.dependencies import principal_of_uid
from server.queries import events, submissions
from server.requeueing import Requeueing
from server.service import Service
from tests.server.fakes import FakeSlurm, live_job

ME = pwd.getpwuid(os.geteuid()).pw_name


class World:
    """One adopted job on n1 and n2; n2 does not respond to Slurm, and is dead."""

    def __init__(self, database: Database, slurm: FakeSlurm, folder: Path) -> None:
        self.slurm, self.database = slurm, database
        slurm.silent.add("n2")
        self.service = Service(database, slurm, runs=str(folder))
        self.hurried: list[int] = []
        self.answers = False
        self.asked: list[str] = []
        self.nodes = DeadNodes(self.service.site, self.answer)
        self.requeueing = Requeueing(
            database, self.service.site, self.hurried.append, self.nodes
        )
        self.live = live_job(
            7, BaseState.RUNNING, user=ME, nodes=("n1", "n2"), batch_host="n1"
        )

    def answer(self, node: str) -> bool:
        self.asked.append(node)
        return self.answers

    def adopt(self, options: str) -> None:
        self.slurm.live[7] = self.live
        call = SbatchCall(
            key=submission_key(new_job_id(), 1, 0),
            words=["job.sh"],
            script=f"#!/bin/sh\n#SBATCH {options}\nsrun train\n",
            folder="/home/me",
            job_id=7,
        )
        me = principal_of_uid(self.service, os.geteuid())
        (told,) = adoption.adopted(self.service, me, [call])
        assert told.job is not None

    def look(self, *tasks: LiveJob) -> int:
        self.nodes.new_round()
        with self.database.read() as session:
            (watched,) = submissions.in_hand(session, "fake")
        records = list(tasks) or [self.live]
        return self.requeueing.look([watched], {watched.key: records})

    def kinds(self) -> list[str]:
        with self.database.read() as session:
            (watched,) = submissions.in_hand(session, "fake")
            return [event.kind for event in events.of_job(session, watched.job_id)]


@pytest.fixture
def world(sqlite: Database, slurm: FakeSlurm, tmp_path: Path) -> World:
    return World(sqlite, slurm, tmp_path)


def test_a_node_that_nobody_reaches_is_set_down_and_the_job_starts_anew(
    world: World,
) -> None:
    world.adopt("--requeue -N2")
    assert world.look() == 1
    assert world.slurm.node_states == {"n2": "down"}
    assert world.hurried == [7]
    assert "node-died" in world.kinds()


@pytest.mark.parametrize("options", ["-N2", "--no-requeue -N2"])
def test_a_job_that_does_not_say_that_it_can_run_again_is_left_alone(
    world: World, options: str
) -> None:
    world.adopt(options)
    assert world.look() == 0
    assert world.slurm.node_states == {}


def test_a_node_whose_slurmd_answers_is_left_alone(world: World) -> None:
    world.adopt("--requeue -N2")
    world.answers = True
    assert world.look() == 0
    assert world.slurm.node_states == {}


def test_a_node_under_many_tasks_of_an_array_is_let_go_of_once(world: World) -> None:
    world.adopt("--requeue --array=0-7")
    tasks = [
        replace(world.live, job_id=7 + n, array_job_id=7, nodes=("n2",))
        for n in range(8)
    ]
    assert world.look(*tasks) == 1
    assert world.asked == ["n2"]
    assert world.kinds().count("node-died") == 1
    assert world.hurried == [7]


def test_where_no_node_may_be_set_down_slurm_takes_its_time(world: World) -> None:
    world.adopt("--requeue -N2")
    world.slurm.forbids_node_states = True
    assert world.look() == 0
    assert world.hurried == []


def test_a_requeued_job_need_not_wait(world: World) -> None:
    world.adopt("--requeue -N2")
    world.live = live_job(7, user=ME, restarts=1, reason="BeginTime")
    world.look()
    assert world.hurried == [7]
