"""Jobs that somebody's own sbatch submitted: whose they are, and what becomes of them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlmodel import Session, select

from hpcplat.embedding import EmbeddedTransport
from hpcplat.ids import new_job_id, submission_key
from hpcplat.slurm.scheduler import Association
from hpcplat.slurm.states import BaseState
from server.app import create_app
from server.database import Database
from server.service import Service
from server.tables import Submission
from tests.server.fakes import FakeSlurm, live_job, past_job

ME = pwd.getpwuid(os.geteuid()).pw_name
SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:2 -N1\nsrun python train.py\n"


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def service(database_url: str, slurm: FakeSlurm, tmp_path: Path) -> Service:
    return Service(Database(database_url), slurm, runs=str(tmp_path / "runs"))


@pytest.fixture
def api(service: Service) -> Iterator[httpx.Client]:
    transport = EmbeddedTransport(create_app(service, threads=False), os.geteuid())
    yield httpx.Client(base_url="http://test/api/v1", transport=transport)
    transport.close()


def call(number: int | None, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "key": submission_key(new_job_id(), 1, 0),
        "words": ["train.sh"],
        "script": SCRIPT,
        "folder": "/home/me",
        "job_id": number,
        **changes,
    }


def adopt(api: httpx.Client, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    answer = api.post("/sbatch", json={"calls": calls})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["calls"]
    return found


def test_a_job_gets_its_row(api: httpx.Client, slurm: FakeSlurm) -> None:
    slurm.live[7] = live_job(7, user=ME, name="train", gpus=2)
    told = call(7)
    (answer,) = adopt(api, told)
    assert answer == {"key": told["key"], "job": told["key"][4:20], "refusal": ""}
    job = api.get(f"/jobs/{answer['job']}").json()
    assert (job["name"], job["kind"], job["slurm_job_id"]) == ("train", "sbatch", 7)
    assert (job["state"], job["gpus"]) == ("PENDING", 2)
    assert job["spec"]["call"] == {"words": ["train.sh"], "folder": "/home/me"}
    assert api.get(f"/jobs/{answer['job']}/script").text == SCRIPT


def test_told_twice_it_is_one_job(api: httpx.Client, slurm: FakeSlurm) -> None:
    slurm.live[7] = live_job(7, user=ME)
    told = call(7)
    assert adopt(api, told) == adopt(api, told)
    assert len(api.get("/jobs").json()["jobs"]) == 1


def test_nobody_takes_a_strangers_job(api: httpx.Client, slurm: FakeSlurm) -> None:
    slurm.live[7] = live_job(7, user="somebody-else")
    slurm.live[8] = live_job(8, user=ME)
    stranger, own, gone = adopt(api, call(7), call(8), call(9))
    assert stranger["job"] is None
    assert "is not" in stranger["refusal"]
    assert own["job"] is not None
    assert gone["refusal"] == "Slurm knows no job 9. See squeue, sacct."
    assert slurm.cancelled == []


def test_a_job_that_ended_long_ago(api: httpx.Client, slurm: FakeSlurm) -> None:
    slurm.past = [past_job(7, user=ME, allocated={"gres/gpu": 4})]
    (answer,) = adopt(api, call(7))
    assert api.get(f"/jobs/{answer['job']}").json()["gpus"] == 4


def test_ones_own_comment_and_a_het_job_stay_one_job(
    api: httpx.Client, slurm: FakeSlurm
) -> None:
    """No component is taken for a twin and cancelled."""
    for place in range(2):
        slurm.live[7 + place] = live_job(
            7 + place, user=ME, address=f"7+{place}", comment="mine", gpus=1
        )
    (answer,) = adopt(api, call(7))
    job = api.get(f"/jobs/{answer['job']}").json()
    assert (job["nodes"], job["gpus"]) == (2, 2)
    for number in (7, 8):
        slurm.live[number] = live_job(
            number, BaseState.RUNNING, user=ME, address=f"7+{number - 7}"
        )
    assert api.get(f"/jobs/{answer['job']}").json()["slurm_job_id"] == 7
    assert slurm.cancelled == []


def test_a_lost_one_is_never_sent_by_us(
    api: httpx.Client, service: Service, slurm: FakeSlurm
) -> None:
    slurm.live[7] = live_job(7, user=ME)
    (answer,) = adopt(api, call(7))
    slurm.live.clear()
    patience = service.reconciler.patience
    with service.database.write() as session:
        (row,) = service_rows(session)
        row.missed_at = datetime.now(UTC) - patience.lost - timedelta(seconds=60)
    service.refresh(at_once=True)
    service.refresh(at_once=True)
    assert slurm.submitted == []
    assert api.get(f"/jobs/{answer['job']}").json()["state"] in {"FAILED", "PENDING"}


def service_rows(session: Session) -> list[Submission]:

    return list(session.exec(select(Submission)).all())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "x"}, "key"),
        ({"job_id": 0}, "job_id"),
        ({"words": "train.sh"}, "words"),
        ({"script": "x" * 1_100_000}, "script"),
    ],
)
def test_bad_calls_are_refused(
    api: httpx.Client, changes: dict[str, Any], words: str
) -> None:
    answer = api.post("/sbatch", json={"calls": [call(7, **changes)]})
    assert answer.status_code == 422
    assert words in answer.text


def test_an_array_counts_its_tasks(api: httpx.Client, slurm: FakeSlurm) -> None:
    for task in range(3):
        slurm.live[7 + task] = live_job(
            7 + task, user=ME, address=f"7_{task}", array_job_id=7, array_task_id=task
        )
    (answer,) = adopt(api, call(7, words=["-a", "0-2", "train.sh"]))
    assert api.get(f"/jobs/{answer['job']}").json()["tasks"] == 3


def test_asking_before(api: httpx.Client) -> None:
    assert api.post("/sbatch/announce", json=call(None)).status_code == 204


def limit(slurm: FakeSlurm, **limits: str) -> None:
    slurm.settings["AccountingStorageEnforce"] = "associations,limits"
    slurm.lines = (
        Association("c", "lab", "", "", "1", limits, (), "normal", "root"),
        Association("c", "lab", ME, "", "1", {}, (), "", ""),
    )


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["-N3", "train.sh"], "6 GPUs asked; account lab may have 4 GPUs (GrpTRES)"),
        (["-N1-8", "train.sh"], ""),  # one node would do
        (["--gpus=4", "-N3", "--gres=none", "train.sh"], ""),
        (["-t", "3:00:00", "train.sh"], "account lab may have 02:00:00 (MaxWall)"),
        (["-t", "3:00:00", "--time-min=1:00:00", "train.sh"], ""),
        (["-t", "3:00:00", "-A", "another", "train.sh"], ""),  # Slurm's to judge
        (["-t", "3:00:00", "-M", "elsewhere", "train.sh"], ""),
        (["-N3", "--nonsense", "train.sh"], ""),  # sbatch's to refuse
    ],
)
def test_what_the_quota_never_lets_run_is_refused(
    api: httpx.Client, slurm: FakeSlurm, words: list[str], refused: str
) -> None:
    limit(slurm, GrpTRES="gres/gpu=4", MaxWall="02:00:00")
    answer = api.post("/sbatch/announce", json=call(None, words=words))
    assert answer.status_code == (403 if refused else 204), answer.text
    if refused:
        assert refused in answer.json()["detail"]
        assert "it can never run" in answer.json()["detail"]
