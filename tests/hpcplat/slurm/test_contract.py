"""What every Scheduler promises, shown on a real Slurm.

An implementation subclasses SchedulerContract and gives a ``scheduler`` fixture.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from hpcplat.cluster import Cluster
from hpcplat.errors import ConflictError, InvalidError, NotFoundError
from hpcplat.slurm.choice import load_pyslurm
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.pyslurm_reads import PyslurmReads
from hpcplat.slurm.scheduler import LiveJob, PastJob, Scheduler, Submission
from hpcplat.slurm.states import BaseState, has_ended, is_final, may_come_back

pytestmark = [pytest.mark.slurm, pytest.mark.matrix]

T = TypeVar("T")
START = datetime.now(UTC) - timedelta(minutes=5)
UGLY = "a|b \"c'\td,é 日本\x1f\x1e;$(id)\\ %j\n12|13"


def eventually(ask: Callable[[], T | Literal[False] | None], limit: float = 60.0) -> T:
    """Return the first answer that is something, within ``limit`` seconds."""
    end = time.monotonic() + limit
    while True:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        assert time.monotonic() < end, f"not so within {limit:g} s"
        time.sleep(0.2)


def commandline(cluster: Cluster) -> CommandLine:
    return CommandLine(
        cluster.folder.slurm_conf, environ=os.environ | cluster.environment()
    )


def find(scheduler: Scheduler, job_id: int, *, finished: bool = False) -> LiveJob:
    jobs = scheduler.jobs(finished=finished)
    return next(job for job in jobs if job.job_id == job_id)


def attempts(scheduler: Scheduler, job_id: int) -> list[PastJob]:
    return [job for job in scheduler.history(START, [job_id]) if job.job_id == job_id]


class SchedulerContract:
    """The promises. Every test leaves the cluster without a job."""

    @pytest.fixture
    def scheduler(self, cluster: Cluster) -> Scheduler:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _no_job_is_left(self, scheduler: Scheduler) -> Iterator[None]:
        yield
        for job in scheduler.jobs():
            scheduler.cancel(job.address)
        eventually(lambda: not scheduler.jobs() or None)

    @pytest.fixture
    def submit(self, scheduler: Scheduler, tmp_path: Path) -> Callable[..., int]:
        def send(script: str, *options: str, user: str | None = None) -> int:
            lines = f"#!/bin/bash\n#SBATCH --output=/dev/null\n{script}\n"
            options = ("--time=5", *options)
            submission = Submission(lines, str(tmp_path), options, user)
            return scheduler.submit(submission).job_id

        return send

    def test_it_knows_itself_and_is_well(
        self, scheduler: Scheduler, cluster: Cluster
    ) -> None:
        config = scheduler.config()
        year, month = scheduler.version()
        assert config["SLURM_VERSION"].startswith(f"{year}.{month:02}")
        assert config["ClusterName"] == cluster.spec.name
        assert int(config["MaxArraySize"]) > 0
        health = scheduler.health()
        assert (health.controller, health.accounting) == (True, True)
        assert health.detail == ""

    def test_names_and_comments_come_back_as_they_were(
        self, scheduler: Scheduler, submit: Callable[..., int]
    ) -> None:
        before = datetime.now(UTC) - timedelta(seconds=2)
        job_id = submit(
            "sleep 60",
            "--hold",
            f"--job-name={UGLY}",
            f"--comment=hpcplat:key {UGLY}",
            "--gres=gpu:h100:3",
            "--nodes=2",
        )
        job = find(scheduler, job_id)
        assert job.name == UGLY
        assert job.comment == f"hpcplat:key {UGLY}"
        assert str(job.state) == "PENDING"
        assert job.reason == "JobHeldUser"
        assert (job.node_count, job.gpus, job.nodes) == (2, 6, ())
        assert job.time_limit == timedelta(minutes=5)
        assert before < job.submitted < datetime.now(UTC) + timedelta(seconds=2)
        assert (job.started, job.ends, job.restarts) == (None, None, 0)
        assert job.address == str(job_id)
        assert (job.array_job_id, job.array_task_id) == (None, None)

    def test_a_job_cancelled_while_held_is_still_found(
        self, scheduler: Scheduler, submit: Callable[..., int]
    ) -> None:
        job_id = submit("sleep 60", "--hold", "--comment=hpcplat:gone")
        scheduler.cancel(str(job_id))
        eventually(lambda: job_id not in {job.job_id for job in scheduler.jobs()})
        job = find(scheduler, job_id, finished=True)
        assert job.state.base is BaseState.CANCELLED
        assert job.comment == "hpcplat:gone"
        past = eventually(lambda: attempts(scheduler, job_id) or None)
        assert past[-1].state.base is BaseState.CANCELLED
        assert past[-1].comment == "hpcplat:gone"
        assert is_final(past[-1].state)

    def test_a_running_job_with_its_nodes_and_gpus(
        self, scheduler: Scheduler, submit: Callable[..., int]
    ) -> None:
        job_id = submit(
            "sleep 60", "--nodes=2", "--gres=gpu:h100:2", "--cpus-per-task=2"
        )
        job = eventually(
            lambda: (
                (found := find(scheduler, job_id)).state.base is BaseState.RUNNING
                and not found.state.flags
                and found
            )
        )
        assert len(job.nodes) == 2
        assert job.batch_host == job.nodes[0]
        assert (job.node_count, job.cpus, job.gpus) == (2, 4, 4)
        assert job.started is not None
        assert job.ends is not None
        assert job.ends - job.started == timedelta(minutes=5)
        assert job.expected_start is None
        nodes = {node.name: node for node in scheduler.nodes()}
        for name in job.nodes:
            assert nodes[name].gpus == {"h100": 4}
            assert nodes[name].gpus_used == {"h100": 2}
            assert nodes[name].cpus_used == 2
            assert nodes[name].memory_used_mib > 0
            assert nodes[name].state == "MIXED"

    def test_a_signal_reaches_the_batch_shell(
        self, scheduler: Scheduler, submit: Callable[..., int], tmp_path: Path
    ) -> None:
        ready, told = tmp_path / "ready", tmp_path / "told"
        job_id = submit(
            f"trap 'touch {told}; exit 0' USR2\ntouch {ready}\nsleep 60 & wait; wait"
        )
        eventually(ready.exists)
        scheduler.cancel(str(job_id), "USR2")
        eventually(told.exists)

    def test_how_a_job_ended(
        self, scheduler: Scheduler, submit: Callable[..., int]
    ) -> None:
        good = submit("true", "--gres=gpu:h100:1")
        bad = submit("exit 3")
        past = eventually(lambda: _ended(attempts(scheduler, good)))
        assert str(past.state) == "COMPLETED"
        assert past.allocated["gres/gpu:h100"] == 1
        assert past.allocated["mem"] >= 1
        assert len(past.nodes) == 1
        assert past.ended is not None
        assert past.started is not None
        assert past.submitted <= past.started <= past.ended
        failed = eventually(lambda: _ended(attempts(scheduler, bad)))
        assert (str(failed.state), failed.exit_code) == ("FAILED", 3)
        assert failed.exit_signal == 0
        batch = eventually(
            lambda: next(
                (
                    step
                    for step in attempts(scheduler, bad)[-1].steps
                    if step.step == "batch"
                ),
                None,
            )
        )
        assert batch.exit_code == 3
        both = scheduler.history(START, [good, bad])
        assert {job.job_id for job in both} == {good, bad}

    def test_an_array_and_its_tasks(
        self, scheduler: Scheduler, submit: Callable[..., int]
    ) -> None:
        array = submit("sleep 60", "--array=0-70:2%2")
        running = eventually(
            lambda: (
                len(
                    found := [
                        job
                        for job in scheduler.jobs()
                        if job.state.base is BaseState.RUNNING
                    ]
                )
                == 2
                and found
            )
        )
        assert {job.address for job in running} == {f"{array}_0", f"{array}_2"}
        assert {job.array_task_id for job in running} == {0, 2}
        assert {job.array_job_id for job in running} == {array}
        waiting = find(scheduler, array)
        assert waiting.array_job_id == array
        assert waiting.array_task_id is None
        assert waiting.address.startswith(f"{array}_[4")
        assert waiting.address.endswith("%2]")
        assert "..." not in waiting.address
        scheduler.cancel(f"{array}_0")
        eventually(
            lambda: f"{array}_0" not in {job.address for job in scheduler.jobs()}
        )
        assert f"{array}_2" in {job.address for job in scheduler.jobs()}

    def test_a_requeue_is_a_new_attempt_under_the_same_id(
        self, scheduler: Scheduler, submit: Callable[..., int]
    ) -> None:
        job_id = submit("sleep 60", "--requeue")
        first = eventually(lambda: _running(find(scheduler, job_id)))
        scheduler.requeue(str(job_id))
        waiting = eventually(
            lambda: (
                (found := find(scheduler, job_id)).restarts == 1
                and str(found.state) == "PENDING"
                and found.reason == "BeginTime"
                and found
            )
        )
        assert waiting.expected_start is not None
        assert waiting.expected_start > datetime.now(UTC)
        with pytest.raises(ConflictError):
            scheduler.requeue(str(job_id))
        scheduler.start_now(str(job_id))
        again = eventually(lambda: _running(find(scheduler, job_id)))
        assert again.restarts == 1
        assert again.submitted > first.submitted
        past = eventually(
            lambda: (
                len(found := attempts(scheduler, job_id)) == 2
                and found[1].started is not None
                and found
            )
        )
        assert past[0].ended is not None
        assert str(past[0].state) == "CANCELLED+REQUEUED"
        assert has_ended(past[0].state)
        assert may_come_back(past[0].state)
        assert past[1].ended is None
        assert str(past[1].state) == "RUNNING"

    def test_hold_and_release(
        self, scheduler: Scheduler, submit: Callable[..., int]
    ) -> None:
        job_id = submit("sleep 60", "--begin=now+1hour")
        assert find(scheduler, job_id).expected_start is not None
        scheduler.hold(str(job_id))
        held = eventually(
            lambda: (
                (found := find(scheduler, job_id)).reason.startswith("JobHeld")
                and found
            )
        )
        assert held.priority == 0
        scheduler.release(str(job_id))
        eventually(lambda: find(scheduler, job_id).priority > 0)
        scheduler.start_now(str(job_id))
        eventually(lambda: _running(find(scheduler, job_id)))

    @pytest.mark.parametrize(
        ("option", "what"),
        [
            ("--partition=nope", "Partitions: "),
            ("--account=nope", "Accounts: "),
            ("--qos=nope", "QOS: "),
            ("--gres=gpu:nope:1", "gpu:h100:4"),
            ("--gres=gpu:h100:5", "gpu:h100:4"),
            ("--mem=9T", "MiB"),
            ("--array=0-99999999", "MaxArraySize"),
            ("--time=soon", "time"),
            ("--no-such-option", "no-such-option"),
        ],
    )
    def test_a_refusal_says_what_there_is(
        self,
        scheduler: Scheduler,
        submit: Callable[..., int],
        option: str,
        what: str,
    ) -> None:
        with pytest.raises(InvalidError) as caught:
            submit("true", option)
        assert what in str(caught.value)
        assert "\n" not in str(caught.value)
        assert scheduler.jobs() == ()

    def test_an_estimate_submits_nothing(
        self, scheduler: Scheduler, tmp_path: Path
    ) -> None:
        def estimate(*options: str) -> datetime | None:
            script = "#!/bin/sh\ntrue\n"
            return scheduler.estimate(Submission(script, str(tmp_path), options))

        now = datetime.now(UTC)
        soon = estimate("--time=5", "--gres=gpu:h100:1")
        assert soon is not None
        assert abs(soon - now) < timedelta(minutes=10)
        later = estimate("--time=5", "--begin=now+2hours")
        assert later is not None
        assert later > now + timedelta(hours=1, minutes=59)
        with pytest.raises(InvalidError, match="gpu:h100:4"):
            estimate("--time=5", "--gres=gpu:nope:1")
        assert scheduler.jobs() == ()

    def test_what_is_not_there(self, scheduler: Scheduler) -> None:
        with pytest.raises(NotFoundError):
            scheduler.requeue("99999999")
        with pytest.raises(NotFoundError):
            scheduler.hold("99999999")
        with pytest.raises(NotFoundError):
            scheduler.set_node_state("nope", "drain", "test")
        scheduler.cancel("99999999")
        assert list(scheduler.history(START, [99999999])) == []

    def test_a_node_is_drained_and_comes_back(self, scheduler: Scheduler) -> None:
        name = scheduler.nodes()[0].name
        scheduler.set_node_state(name, "drain", "xid 79 | gpu 2\nState=IDLE")
        try:
            node = next(node for node in scheduler.nodes() if node.name == name)
            assert node.state == "IDLE"
            assert "DRAIN" in node.flags
            assert node.reason == "xid 79 | gpu 2 State=IDLE"
        finally:
            scheduler.set_node_state(name, "resume")
        node = next(node for node in scheduler.nodes() if node.name == name)
        assert node.state == "IDLE"
        assert "DRAIN" not in node.flags

    def test_partitions_associations_and_shares(
        self, scheduler: Scheduler, cluster: Cluster
    ) -> None:
        partition = next(one for one in scheduler.partitions() if one.is_default)
        assert partition.name == cluster.spec.partition
        assert set(partition.nodes) == {node.name for node in cluster.spec.nodes}
        assert partition.state == "UP"
        assert all(partition.name in node.partitions for node in scheduler.nodes())
        accounts = {each.account for each in scheduler.associations()}
        assert cluster.spec.account in accounts
        qos = {each.name: each for each in scheduler.qos()}
        assert qos["prod"].preempts == ("spot",)
        assert set(scheduler.qos_minutes()) == set(qos)
        shares = {(each.account, each.user) for each in scheduler.shares()}
        assert (cluster.spec.account, "") in shares

    def test_a_job_of_somebody_else(
        self,
        scheduler: Scheduler,
        submit: Callable[..., int],
        cluster: Cluster,
        request: pytest.FixtureRequest,
    ) -> None:
        if cluster.spec.root is not None:
            pytest.skip("the change-root folder has no such users")
        unix_users: tuple[str, ...] = request.getfixturevalue("unix_users")
        alice = unix_users[0]
        with tempfile.TemporaryDirectory() as open_to_all:
            folder = Path(open_to_all)
            folder.chmod(0o777)
            job_id = submit(
                f'echo "$(id -un) $(id -gn) $HOME" > {folder}/who',
                f"--chdir={folder}",
                user=alice,
            )
            eventually(lambda: _ended(attempts(scheduler, job_id)))
            who = (folder / "who").read_text().split()
        assert who == [alice, alice, f"/home/{alice}"]
        assert attempts(scheduler, job_id)[-1].user == alice
        with pytest.raises(InvalidError, match="no Unix account"):
            submit("true", user="nobody-of-this-name")


def _running(job: LiveJob) -> LiveJob | None:
    return job if str(job.state) == "RUNNING" else None


def _ended(past: list[PastJob]) -> PastJob | None:
    if past and past[-1].ended is not None and has_ended(past[-1].state):
        return past[-1]
    return None


class TestCommandLine(SchedulerContract):
    @pytest.fixture
    def scheduler(self, cluster: Cluster) -> Scheduler:
        return commandline(cluster)


class TestPyslurm(SchedulerContract):
    @pytest.fixture
    def scheduler(self, cluster: Cluster) -> Scheduler:
        lines = commandline(cluster)
        offer = load_pyslurm(lines, cluster.folder.slurm_conf)
        if offer.module is None:
            pytest.skip(f"PYSLURM IS NOT TESTED HERE: {offer.why_not}")
        return PyslurmReads(
            cluster.folder.slurm_conf,
            environ=os.environ | cluster.environment(),
            pyslurm=offer.module,
        )
