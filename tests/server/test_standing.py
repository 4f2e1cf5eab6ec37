"""Requests against Slurm's limits through the API: refusals, and what one waits for."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.embedding import EmbeddedTransport
from hpcplat.errors import UnavailableError
from hpcplat.slurm.scheduler import Association, Qos, Share
from hpcplat.slurm.states import BaseState
from server.app import create_app
from server.database import Database
from server.service import Service
from tests.server.fakes import FakeSlurm, live_job

ME = pwd.getpwuid(os.geteuid()).pw_name


def line(user: str, **limits: str) -> Association:
    return Association("c", "lab", user, "", "1", limits, (), "normal", "root")


@pytest.fixture
def limited() -> FakeSlurm:
    return FakeSlurm(
        settings={"AccountingStorageEnforce": "associations,limits,qos"},
        lines=(line("", GrpTRES="gres/gpu=6", MaxWall="02:00:00"), line(ME)),
        qualities=(Qos("normal", 0, (), "cluster", frozenset(), {}),),
        share_lines=(Share("c", "lab", ME, 1, 0.5, 0, 0.1, 0.75, 1.0),),
    )


@pytest.fixture
def api(sqlite: Database, limited: FakeSlurm, tmp_path: Path) -> Iterator[httpx.Client]:
    service = Service(sqlite, limited, runs=str(tmp_path / "runs"))
    transport = EmbeddedTransport(create_app(service, threads=False), os.geteuid())
    with httpx.Client(base_url="http://test/api/v1", transport=transport) as client:
        yield client


def spec(**resources: Any) -> dict[str, Any]:  # noqa: ANN401
    asked = {"nodes": 1, "gpus_per_node": 4, "time": "1h", **resources}
    return {"spec": {"name": "x", "command": ["true"], "resources": asked}}


@pytest.mark.parametrize(
    ("resources", "field", "told", "nearest"),
    [
        (
            {"nodes": 2},
            "resources.gpus_per_node",
            "8 GPUs asked; account lab may have 6 GPUs (GrpTRES): it can never run.",
            "Ask for at most 1 node with 4 GPUs each.",
        ),
        (
            {"time": "3h"},
            "resources.time",
            "account lab may have 02:00:00 (MaxWall): it can never run.",
            "Ask for at most 02:00:00.",
        ),
        ({"qos": "gold"}, "resources.qos", "There is no QOS gold.", "normal"),
    ],
)
def test_what_can_never_run_is_refused_with_the_nearest_that_can(
    api: httpx.Client,
    limited: FakeSlurm,
    resources: dict[str, Any],
    field: str,
    told: str,
    nearest: str,
) -> None:
    answer = api.post("/jobs", json=spec(**resources))
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == f"spec.{field}"
    assert told in error["detail"]
    assert nearest in error["remedy"]
    assert limited.submitted == []
    assert api.get("/jobs").json()["jobs"] == []


def test_what_will_wait_is_taken_and_told_for_what(
    api: httpx.Client, limited: FakeSlurm
) -> None:
    limited.live[1] = live_job(
        1, BaseState.RUNNING, user=ME, account="lab", gpus=4, nodes=("n1",)
    )
    limited.live[2] = live_job(2, BaseState.PENDING, priority=9, account="lab")
    shown = api.post("/jobs", json=spec(), params={"dry_run": True}).json()["outlook"]
    assert shown["waits_for"] == [
        "4 GPUs asked; account lab may have 6 GPUs (GrpTRES, 4 GPUs in use)."
    ]
    assert (shown["fair_share"], shown["place"]) == (0.75, 2)


def test_a_waiting_job_tells_why(api: httpx.Client, limited: FakeSlurm) -> None:
    job = api.post("/jobs", json=spec()).json()
    number = job["slurm_job_id"]
    limited.live[number] = live_job(
        number,
        BaseState.PENDING,
        comment=limited.live[number].comment,
        user=ME,
        reason="AssocGrpGRES",
        priority=5,
    )
    shown = api.get(f"/jobs/{job['id']}/outlook").json()
    assert shown["place"] == 1
    assert shown["fair_share"] == 0.75
    assert shown["is_hopeless"] is False


def test_whom_slurm_does_not_let_in_is_told_before(
    api: httpx.Client, limited: FakeSlurm
) -> None:
    limited.lines = (line(""),)
    api.post("/workspaces", json={"name": "lab"})
    job = {"spec": {**spec()["spec"], "workspace": "lab"}}
    [error] = api.post("/jobs", json=job).json()["errors"]
    assert error["field"] == "spec.workspace"
    assert "does not let" in error["detail"]


def test_without_accounting_nothing_is_refused(
    api: httpx.Client, limited: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down() -> Any:  # noqa: ANN401
        raise UnavailableError("slurmdbd is down.")

    monkeypatch.setattr(limited, "associations", down)
    assert api.post("/jobs", json=spec(nodes=2)).status_code == 201
