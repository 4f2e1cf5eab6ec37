"""What is made of pyslurm's records, by the attributes that 25.11 documents.

Where pyslurm is installed, test_contract.py shows the same on a real Slurm.
"""

from __future__ import annotations

import importlib.util
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcplat.errors import UnavailableError
from hpcplat.slurm.answers import UnreadableError
from hpcplat.slurm.choice import load_pyslurm, open_scheduler
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.pyslurm_reads import PyslurmReads, live_job, node


def resources(**counts: int) -> SimpleNamespace:
    gres = {name.replace("__", ":"): n for name, n in counts.items()}
    return SimpleNamespace(
        gres={name: SimpleNamespace(count=n) for name, n in gres.items()}
    )


def job_record(**fields: object) -> SimpleNamespace:
    defaults: dict[str, object] = {
        "id": 7,
        "name": "train",
        "user_name": "alice",
        "account": "nlp",
        "partition": "gpu",
        "qos": "normal",
        "state": "RUNNING",
        "state_reason": "None",
        "comment": None,
        "allocated_nodes": "n[1,3-4]",
        "num_nodes": 3,
        "cpus": 6,
        "allocated_tres": resources(gpu=6, gpu__h100=6),
        "requested_tres": resources(gpu=6, gpu__h100=6),
        "time_limit": 90,
        "submit_time": 1796009691,
        "start_time": 1796009700,
        "end_time": 1796015100,
        "priority": 1,
        "requeue_count": 0,
        "array_id": None,
        "array_task_id": None,
        "array_tasks_waiting": None,
        "array_tasks_parallel": None,
        "heterogeneous_id": None,
        "heterogeneous_offset": None,
        "batch_host": "n1",
        "cluster": "pocket",
    }
    return SimpleNamespace(**defaults | fields)


def test_a_running_job() -> None:
    job = live_job(job_record(comment="hpcplat:k", requeue_count=2))
    assert job.nodes == ("n1", "n3", "n4")
    assert (job.gpus, job.cpus, job.node_count) == (6, 6, 3)
    assert job.time_limit == timedelta(minutes=90)
    assert job.submitted == datetime.fromtimestamp(1796009691, UTC)
    assert job.started is not None
    assert job.ends == job.started + timedelta(minutes=90)
    assert (job.reason, job.comment, job.restarts) == ("", "hpcplat:k", 2)
    assert job.address == "7"


def test_a_pending_job() -> None:
    job = live_job(
        job_record(
            state="PENDING",
            allocated_nodes=None,
            allocated_tres=None,
            batch_host=None,
            end_time=None,
            time_limit=None,
        )
    )
    assert (job.started, job.ends, job.nodes, job.gpus) == (None, None, (), 6)
    assert job.expected_start is not None
    assert (job.time_limit, job.batch_host) == (None, "")


@pytest.mark.parametrize(
    ("fields", "address", "task"),
    [
        ({"array_id": 5, "array_task_id": 3}, "5_3", 3),
        ({"array_id": 5, "array_task_id": None}, "5_0", 0),
        (
            {"array_id": 5, "array_tasks_waiting": "2-9", "array_tasks_parallel": 2},
            "5_[2-9%2]",
            None,
        ),
        ({"array_id": 5, "array_tasks_waiting": "2,4"}, "5_[2,4]", None),
        ({"heterogeneous_id": 6}, "6+0", None),
        ({"heterogeneous_id": 6, "heterogeneous_offset": 1}, "6+1", None),
    ],
)
def test_how_a_job_is_named(
    fields: dict[str, object], address: str, task: int | None
) -> None:
    job = live_job(job_record(**fields))
    assert (job.address, job.array_task_id) == (address, task)


@pytest.mark.parametrize(
    "fields",
    [{"state": "BRAND_NEW"}, {"submit_time": None}, {"allocated_nodes": "n[1-"}],
)
def test_a_record_that_cannot_be_read(fields: dict[str, object]) -> None:
    with pytest.raises(UnreadableError):
        live_job(job_record(**fields))


def node_record(**fields: object) -> SimpleNamespace:
    defaults: dict[str, object] = {
        "name": "n1",
        "state": "MIXED+DRAIN",
        "partitions": ["gpu", "debug"],
        "available_features": ["nvlink"],
        "configured_gres": {"gpu:h100": 4},
        "allocated_gres": {"gpu": "3", "gpu:h100": "3"},
        "total_cpus": 8,
        "allocated_cpus": 2,
        "real_memory": 4000,
        "allocated_memory": 200,
        "reason": None,
    }
    return SimpleNamespace(**defaults | fields)


def test_a_node() -> None:
    found = node(node_record())
    assert (found.state, found.flags) == ("MIXED", frozenset({"DRAIN"}))
    assert (found.gpus, found.gpus_used) == ({"h100": 4}, {"h100": 3})
    assert found.partitions == ("gpu", "debug")
    assert (found.memory_mib, found.memory_used_mib, found.reason) == (4000, 200, "")


class RefusedError(Exception):
    """Stands for pyslurm.PyslurmError."""


def reads(tmp_path: Path, jobs: object, ping: str = "true") -> PyslurmReads:
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\n{ping}\n")
    program.chmod(0o755)
    module = SimpleNamespace(Jobs=jobs, Nodes=jobs, PyslurmError=RefusedError)
    return PyslurmReads(environ={}, pyslurm=module, programs=tmp_path)


def collection(*records: object) -> SimpleNamespace:
    return SimpleNamespace(load=lambda: dict(enumerate(records)))


def test_ended_jobs_are_shown_on_request(tmp_path: Path) -> None:
    records = collection(job_record(), job_record(id=8, state="COMPLETED"))
    scheduler = reads(tmp_path, records)
    assert [job.job_id for job in scheduler.jobs()] == [7]
    assert [job.job_id for job in scheduler.jobs(finished=True)] == [7, 8]


def test_an_empty_or_broken_answer_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        reads(tmp_path, collection()).jobs()
    up = "echo 'Slurmctld(primary) at ctl is UP'"
    assert reads(tmp_path, collection(), up).jobs() == ()
    with pytest.raises(UnreadableError):
        reads(tmp_path, collection()).nodes()

    def fail() -> None:
        raise RefusedError("Unable to contact slurm controller")

    with pytest.raises(UnavailableError, match="Unable to contact"):
        reads(tmp_path, SimpleNamespace(load=fail)).jobs()


def test_it_is_offered_only_where_it_is_installed(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyslurm") is not None:
        pytest.skip("pyslurm is installed: test_contract.py uses it")
    offer = load_pyslurm(CommandLine(environ={}), None)
    assert offer.module is None
    assert offer.why_not == "pyslurm is not installed"
    assert type(open_scheduler(environ={})) is CommandLine


def test_it_must_be_of_the_same_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pyslurm of another release is not even imported: libslurm would end us."""
    (tmp_path / "pyslurm.py").write_text("raise SystemExit('imported')\n")
    info = tmp_path / "pyslurm-25.11.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: pyslurm\nVersion: 25.11.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\necho 'slurm-wlm 22.05.8'\n")
    program.chmod(0o755)
    offer = load_pyslurm(CommandLine(environ={}, programs=tmp_path), None)
    assert offer.why_not == "pyslurm is for Slurm 25.11, this is 22.05"


def test_one_that_cannot_tell_gpus_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyslurm.py").write_text("class Job:\n    pass\n")
    info = tmp_path / "pyslurm-24.11.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: pyslurm\nVersion: 24.11.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyslurm", raising=False)
    for name, answer in (
        ("sbatch", "slurm-wlm 24.11.5"),
        ("scontrol", "SLURM_VERSION = 24.11.5\nClusterName = east"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (tmp_path / name).chmod(0o755)
    offer = load_pyslurm(CommandLine(environ={}, programs=tmp_path), None)
    monkeypatch.delitem(sys.modules, "pyslurm")
    assert offer.module is None
    assert "does not tell a job's GPUs" in offer.why_not
