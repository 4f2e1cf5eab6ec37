"""submitit's own examples, on the executor, through the real Slurm."""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from pathlib import Path

import pytest

submitit = pytest.importorskip("submitit")

from submitit.core.utils import FailedJobError, UncompletedJobError
from submitit.helpers import Checkpointable, DelayedSubmission

from hpcplat.cluster import Cluster
from hpcplat.executor import HpcplatExecutor, HpcplatJob, _names

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def add(a: int, b: int) -> int:
    sys.stdout.write(f"adding {a} and {b}\n")
    return a + b


def fail() -> None:
    raise ValueError("no such luck")


def environment() -> str:
    return str(submitit.JobEnvironment())


class Counting(Checkpointable):
    """Counts its starts in a file; the first start waits to be interrupted."""

    def __call__(self, folder: str, starts: int = 0) -> int:
        self.starts = starts + 1
        (Path(folder) / f"start-{self.starts}").touch()
        if self.starts == 1:
            time.sleep(60)
        return self.starts

    def checkpoint(self, folder: str, starts: int = 0) -> DelayedSubmission:
        return DelayedSubmission(self, folder, self.starts)


@pytest.fixture
def executor(
    slurm_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> HpcplatExecutor:
    monkeypatch.setenv("HPCPLAT_DATA", str(tmp_path / "data"))
    executor = HpcplatExecutor(folder=tmp_path / "%j")
    executor.update_parameters(timeout_min=20, slurm_partition="gpu", mem_gb=0.25)
    return executor


def test_names_of_a_waiting_array() -> None:
    assert list(_names("7_[3-5,8%2]", 7, None)) == ["7_3", "7_4", "7_5", "7_8"]
    assert list(_names("7_[0-4:2]", 7, None)) == ["7_0", "7_2", "7_4"]
    assert list(_names("7_1", 7, 1)) == ["7_1"]
    assert list(_names("7", None, None)) == ["7"]


def test_submit(executor: HpcplatExecutor, tmp_path: Path) -> None:
    job = executor.submit(add, 5, 7)
    assert isinstance(job, HpcplatJob)
    assert job.result() == 12
    assert "adding 5 and 7" in (job.stdout() or "")
    assert job.done()
    record = next((tmp_path / "data" / "sbatch").glob("hpc-*.json")).read_text()
    assert f'"job_id": {job.job_id}' in record


def test_an_exception_of_the_job(executor: HpcplatExecutor) -> None:
    job = executor.submit(fail)
    with pytest.raises(FailedJobError, match="no such luck"):
        job.result()
    assert isinstance(job.exception(), FailedJobError)


def test_map_array_with_one_question_for_all(executor: HpcplatExecutor) -> None:
    executor.update_parameters(slurm_array_parallelism=8)
    jobs = executor.map_array(add, [1, 2, 3, 4], [10, 20, 30, 40])
    asked = HpcplatJob.watcher.num_calls
    assert [job.result() for job in jobs] == [11, 22, 33, 44]
    assert HpcplatJob.watcher.num_calls - asked < 20
    assert len({job.job_id.split("_")[0] for job in jobs}) == 1


def test_batch(executor: HpcplatExecutor) -> None:
    with executor.batch():
        jobs = [executor.submit(add, n, n) for n in range(3)]
    assert [job.result() for job in jobs] == [0, 2, 4]


def test_several_tasks_know_their_places(executor: HpcplatExecutor) -> None:
    executor.update_parameters(nodes=2, tasks_per_node=2)
    job = executor.submit(environment)
    found = job.results()
    assert len(found) == 4
    assert [f"global_rank={n}(4)" in text for n, text in enumerate(found)] == [True] * 4


def test_awaitable(executor: HpcplatExecutor) -> None:
    job = executor.submit(add, 1, 1)
    assert asyncio.run(job.awaitable().result()) == 2


def test_a_cancelled_job_never_completes(executor: HpcplatExecutor) -> None:
    executor.update_parameters(slurm_additional_parameters={"hold": True})
    job = executor.submit(add, 1, 1)
    assert job.state == "PENDING"
    job.cancel()
    job._results_timeout_s = 1
    with pytest.raises(UncompletedJobError, match="CANCELLED"):
        job.result()


@pytest.mark.parametrize("timed_out", [False, True], ids=["preempted", "timed out"])
def test_a_checkpoint_is_taken_and_the_job_comes_back(
    executor: HpcplatExecutor, tmp_path: Path, cluster: Cluster, timed_out: bool
) -> None:
    job = executor.submit(Counting(), str(tmp_path))  # type: ignore[no-untyped-call]
    deadline = time.monotonic() + 60
    while not (tmp_path / "start-1").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(1)
    assert isinstance(job, HpcplatJob)
    job._interrupt(timeout=timed_out)
    while job.state != "PENDING":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    cluster.run("scontrol", "update", f"jobid={job.job_id}", "StartTime=now+2")
    assert job.result() == 2


def test_a_job_is_a_pickle(executor: HpcplatExecutor) -> None:
    job = executor.submit(add, 2, 2)
    assert pickle.loads(pickle.dumps(job)).result() == 4


def test_what_the_script_says_stands_in_the_job_s_log(
    executor: HpcplatExecutor,
) -> None:
    executor.update_parameters(
        slurm_setup=["echo set up"], slurm_teardown=["echo torn down >&2"]
    )
    job = executor.submit(add, 1, 2)
    assert job.result() == 3
    assert (job.stdout() or "").startswith("set up\n")


def test_autoexecutor_finds_it(executor: HpcplatExecutor, tmp_path: Path) -> None:
    auto = submitit.AutoExecutor(folder=tmp_path / "auto" / "%j", cluster="hpcplat")
    auto.update_parameters(timeout_min=20, mem_gb=0.25, hpcplat_partition="gpu")
    job = auto.submit(add, 3, 4)
    assert isinstance(job, HpcplatJob)
    assert job.result() == 7
