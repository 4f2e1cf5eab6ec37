"""MLflow's client against the service: for what runs outside of jobs."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hpcplat.settings import read_settings
from hpcplat.tracking.curves import history
from hpcplat.tracking.mlflow_job import mlflow_runs
from server import dependencies, mlflow, problems
from server.aimui import install
from server.aimui.proxy import AimGate
from server.aimui.sessions import Sessions
from server.auth import Principal
from server.collector.mlflow_runs import MlflowCatalogue, Several
from server.database import Database
from server.queries import people

SCRIPT = """
import mlflow, pathlib
with mlflow.start_run(run_name="notebook") as run:
    mlflow.log_param("lr", 0.1)
    for step in range(10):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    pathlib.Path("model.bin").write_bytes(b"weights" * 1000)
    mlflow.log_artifact("model.bin", "models")
client = mlflow.MlflowClient()
[folder] = client.list_artifacts(run.info.run_id)
assert (folder.path, folder.is_dir) == ("models", True), folder
path = client.download_artifacts(run.info.run_id, "models/model.bin", ".")
assert pathlib.Path(path).read_bytes() == b"weights" * 1000
"""

ALICE = Principal(1, "alice", is_admin=False)
SEES: Mapping[str, bool] = {"team": True, "other": False}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[FastAPI]:
    made = FastAPI()
    host: Any = None
    made.state.aim = AimGate(host, Sessions(), lambda _: None, lambda _: SEES)
    made.state.mlflow = mlflow.MlflowSite(tmp_path / "mlflow")
    made.include_router(mlflow.router)
    made.dependency_overrides[dependencies.principal] = lambda: ALICE
    problems.install(made)
    yield made
    made.state.mlflow.close()


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app) as made:
        yield made


@pytest.fixture
def address(app: FastAPI) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.mark.slow
def test_a_notebook_s_run_becomes_a_run_folder(address: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        cwd=tmp_path,
        env={
            "PATH": os.defpath,
            "HOME": str(tmp_path),
            "MLFLOW_TRACKING_URI": f"{address}/mlflow/team",
            "MLFLOW_TRACKING_TOKEN": "hpcplat_x",
        },
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    catalogue = Several(MlflowCatalogue(tmp_path / "mlflow"))
    [run] = catalogue.runs(datetime.fromtimestamp(0, UTC))
    assert (run.workspace, run.name, run.state) == ("team", "notebook", "FINISHED")
    assert run.ended is not None
    assert abs(run.ended - time.time()) < 300
    points = history(run.folder).curve("loss").points
    assert [p.value for p in points][:2] == [1.0, 0.5]
    assert dict(mlflow_runs(run.folder))["notebook"]["params"] == {"lr": "0.1"}


CREATE = "api/2.0/mlflow/runs/create"
FILES = "api/2.0/mlflow-artifacts/artifacts"


def test_viewers_and_strangers_log_nothing(client: TestClient) -> None:
    assert client.post(f"/mlflow/team/{CREATE}", json={}).status_code == 200
    assert client.post(f"/mlflow/other/{CREATE}", json={}).status_code == 403
    assert client.post(f"/mlflow/secret/{CREATE}", json={}).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "artifacts/%2e%2e/%2e%2e/secret",
        "runs/x.json",
        "%2e%2e/x",
        "%2Fetc%2Fpasswd",
        "artifacts/a%00b",
    ],
)
def test_artifacts_stay_among_themselves(
    client: TestClient, tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret").write_text("secret")
    assert client.get(f"/mlflow/team/{FILES}/{path}").status_code == 404
    assert client.put(f"/mlflow/team/{FILES}/{path}", content=b"x").status_code == 404


def test_an_artifact_that_is_too_large_leaves_nothing(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow, "LARGEST_ARTIFACT", 10)
    path = f"/mlflow/team/{FILES}/artifacts/n/artifacts/a.bin"
    assert client.put(path, content=b"x" * 11).status_code == 422
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
    assert client.put(path, content=b"x" * 10).status_code == 200
    assert client.get(path).content == b"x" * 10


def test_bad_calls_are_told(client: TestClient) -> None:
    path = f"/mlflow/team/{CREATE}"
    assert client.post(path, content=b"{").status_code == 422
    unknown = client.post("/mlflow/team/api/2.0/mlflow/no/such", json={})
    assert unknown.status_code == 404
    assert unknown.json()["message"]


def test_users_have_stores_of_their_own(tmp_path: Path) -> None:
    site = mlflow.MlflowSite(tmp_path)
    site.store("team", "alice").add_run({"run_name": "hers"})
    site.store("team", "bob").add_run({"run_name": "his"})
    names = [r["info"]["run_name"] for r in site.store("team", "bob").runs(["0"])]
    assert names == ["his"]
    for workspace, user in (("..", "x"), ("team", "../x"), ("a/b", "x"), ("team", "")):
        with pytest.raises(Exception, match="can't be the name"):
            site.place(workspace, user)
    site.close()


def test_it_is_there_without_aim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "is_available", lambda: False)
    database = Database(f"sqlite:///{tmp_path}/hpcplat.db")
    database.migrate()
    made = FastAPI()
    settings = read_settings({"HPCPLAT_DATA": str(tmp_path)})
    admin = Principal(1, "root", is_admin=True)
    made.dependency_overrides[dependencies.principal] = lambda: admin
    with database.write() as session:
        people.ensure_workspace(session, "team", datetime.now(UTC))
    with install.tracked(made, settings, database), TestClient(made) as client:
        assert client.post(f"/mlflow/team/{CREATE}", json={}).status_code == 200
        assert client.get("/aim/").status_code == 404
    database.close()
