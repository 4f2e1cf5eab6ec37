"""What is known of the GPUs of past jobs: the run folder goes before accounting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcplat import eventlog
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.tracking.gpu_tally import GpuTally
from server.people.idle import Accounting, Watch, by_slurm
from server.queries.starts import Start
from server.usage_watching import Watching, accounting_of
from tests.server.fakes import NOW, past_job

SITE = Accounting((24, 11))
RECORD = past_job(7, allocated={"gres/gpu": 4})


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """The folder of a job that began to make steps."""
    found = RunFolder(tmp_path / "job")
    found.attempt(1).root.mkdir(parents=True)
    steps = RunEvent(EventKind.STEPPING, "", 1, NOW.timestamp() + 15)
    eventlog.append(found.events, steps)
    return found


def start(run: RunFolder, task: int = -1) -> Start:
    spec = {"resources": {"nodes": 1, "spares": 1, "gpus_per_node": 2}}
    return Start(7, task, 0, 1, NOW, ["n1", "n2"], str(run.root), spec)


def test_a_run_folder_tells_of_steps_and_of_samples(run: RunFolder) -> None:
    watching = Watching([start(run)], SITE)
    found = watching.of(RECORD)
    assert [period.begin for period in found.used] == [NOW.timestamp() + 15]
    assert (found.given, found.idle_share) == (2, None)  # the spare node's are not used
    for node, tally in (("n1", GpuTally(6, 1)), ("n2", GpuTally(6, 5))):
        tally.write(run.attempt(1).gpu_tally(node))
    assert watching.of(RECORD).idle_share == 0.5


def test_who_has_no_run_folder_has_its_steps_in_accounting(
    run: RunFolder, tmp_path: Path
) -> None:
    foreign = replace(RECORD, job_id=8, address="8")
    before = replace(
        RECORD, started=NOW.replace(year=2020)
    )  # the number of another job
    gone = start(RunFolder(tmp_path / "gone"))
    for watching, record in (
        (Watching([start(run)], SITE), foreign),
        (Watching([start(run)], SITE), before),
        (Watching([gone], SITE), RECORD),
    ):
        assert watching.of(record) == by_slurm(record, SITE) == Watch()


def test_a_task_of_an_array_has_a_folder_of_its_own(run: RunFolder) -> None:
    of_task = run.task(3)
    of_task.root.mkdir(parents=True)
    eventlog.append(
        of_task.events, RunEvent(EventKind.STEPPING, "", 1, NOW.timestamp() + 30)
    )
    watching = Watching([start(run, 3)], SITE)
    [period] = watching.of(replace(RECORD, job_id=9, address="7_3")).used
    assert period.begin == NOW.timestamp() + 30
    assert watching.of(replace(RECORD, job_id=9, address="7_4")) == Watch()


def test_what_accounting_can_tell_stands_in_slurms_configuration() -> None:
    config = {"SLURM_VERSION": "22.05.8", "AccountingStorageEnforce": "limits,nosteps"}
    assert accounting_of(config) == Accounting((22, 5), keeps_steps=False)
    assert accounting_of({}) == Accounting((0, 0))
