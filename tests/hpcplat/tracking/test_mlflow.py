"""An unmodified MLflow script against the endpoint that jobs get."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hpcplat.errors import ConflictError
from hpcplat.tracking import MetricsWriter
from hpcplat.tracking.curves import history
from hpcplat.tracking.layout import metrics_files
from hpcplat.tracking.mlflow_api import answer
from hpcplat.tracking.mlflow_job import mlflow_runs, store_of_job
from hpcplat.tracking.mlflow_server import MlflowServer
from hpcplat.tracking.mlflow_store import MlflowStore

SCRIPT = """
import mlflow, pathlib
mlflow.set_experiment("demo")
with mlflow.start_run(run_name="first") as run:
    mlflow.log_param("lr", 0.1)
    mlflow.log_params({"layers": 2, "name": "gpt"})
    mlflow.set_tag("team", "nlp")
    for step in range(20):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_metrics({"a": 1.0, "b": float("nan")}, step=3)
    mlflow.log_text("hello", "note.txt")
    pathlib.Path("model.bin").write_bytes(b"weights")
    mlflow.log_artifact("model.bin")
    mlflow.log_dict({"x": 1}, "config.json")
    with mlflow.start_run(run_name="inner", nested=True):
        mlflow.log_metric("loss", 7.0, step=1)
client = mlflow.MlflowClient()
found = client.get_run(run.info.run_id)
assert found.data.params["lr"] == "0.1", found.data.params
assert found.data.metrics["loss"] == 0.05, found.data.metrics
assert found.info.status == "FINISHED", found.info
assert len(client.get_metric_history(run.info.run_id, "loss")) == 20
assert [r.info.run_name for r in client.search_runs([found.info.experiment_id])] == [
    "inner", "first"]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    run = tmp_path / "run"
    run.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    made = MlflowServer(listener, "secret", store_of_job(run, 1, "n1"))
    host, port = listener.getsockname()
    yield f"http://{host}:{port}"
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MlflowStore]:
    made = store_of_job(tmp_path, 1, "n1")
    yield made
    made.close()


@pytest.mark.slow
def test_a_script_that_knows_nothing_of_us(server: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        cwd=tmp_path,
        env={
            "PATH": os.defpath,
            "HOME": str(tmp_path),
            "MLFLOW_TRACKING_URI": server,
            "MLFLOW_TRACKING_TOKEN": "secret",
        },
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    points = history(run).curve("loss").points
    assert [point.step for point in points] == list(range(20))
    assert points[3].value == 0.25
    inner = [file.source for file in metrics_files(run) if file.source != "main"]
    assert len(inner) == 1
    found = [json.loads(p.read_text()) for p in run.glob("mlflow/n1/runs/*.json")]
    [first] = [r for r in found if r["info"]["run_name"] == "first"]
    assert dict(mlflow_runs(run))["first"]["params"]["lr"] == "0.1"
    assert first["params"] == {"lr": "0.1", "layers": "2", "name": "gpt"}
    assert first["tags"]["team"] == "nlp"
    number = first["info"]["run_id"]
    artifacts = run / "mlflow" / "n1" / "artifacts" / number / "artifacts"
    assert (artifacts / "model.bin").read_bytes() == b"weights"
    assert (artifacts / "note.txt").read_text() == "hello"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_only_the_job_s_own_token_is_let_in(
    server: str, headers: dict[str, str]
) -> None:
    path = "/api/2.0/mlflow/experiments/search"
    assert httpx.post(server + path, json={}, headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/2.0/mlflow/runs/create", b"{", 404),
        ("POST", "/api/2.0/mlflow/runs/create", b"[1]", 404),
        ("POST", "/api/2.0/mlflow/runs/log-metric", b'{"run_id": "x"}', 404),
        ("POST", "/api/2.0/mlflow/runs/log-batch", b'{"metrics": []}', 400),
        ("GET", "/api/2.0/mlflow/experiments/get?experiment_id=9", b"", 404),
        ("GET", "/etc/passwd", b"", 404),
        ("POST", "/api/2.0/mlflow/no/such", b"{}", 404),
    ],
)
def test_bad_calls_are_answered_in_one_line(
    server: str, method: str, path: str, body: bytes, status: int
) -> None:
    headers = {"Authorization": "Bearer secret"}
    found = httpx.request(method, server + path, content=body, headers=headers)
    assert found.status_code == status
    assert found.json()["message"]


def test_a_parameter_is_not_changed_in_silence(store: MlflowStore) -> None:
    number = store.add_run({})["info"]["run_id"]
    words = {"run_id": number, "key": "lr", "value": "1"}
    assert answer(store, "POST", "runs/log-parameter", words).status == 200
    again = answer(store, "POST", "runs/log-parameter", {**words, "value": "2"})
    assert again.status == 400
    assert "already" in again.body["message"]


def test_what_was_logged_is_there_in_the_next_attempt(tmp_path: Path) -> None:
    first = store_of_job(tmp_path, 1, "n1")
    number = first.add_run({"run_name": "long"})["info"]["run_id"]
    first.log(number, [{"key": "loss", "value": 1.0, "step": 1}], [], [])
    first.close()
    second = store_of_job(tmp_path, 2, "n1")
    second.log(number, [{"key": "loss", "value": 2.0, "step": 2}], [], [])
    assert second.run(number)["info"]["run_name"] == "long"
    second.close()
    points = history(tmp_path).curve("loss").points
    assert [(p.attempt, p.value) for p in points] == [(1, 1.0), (2, 2.0)]


def test_a_job_s_own_curves_are_kept_apart(store: MlflowStore, tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.log({"loss": 1.0}, step=0)
    writer.close()
    store.add_run({})
    number = store.runs(["0"])[0]["info"]["run_id"]
    store.log(number, [{"key": "loss", "value": 1.0}], [], [])
    store.close()
    sources = {file.source for file in metrics_files(tmp_path)}
    assert sources == {"main", "mlflow"}


def test_models_are_made_and_finished(store: MlflowStore) -> None:
    made = answer(store, "POST", "logged-models", {"name": "gpt", "tags": []}).body
    number = made["model"]["info"]["model_id"]
    path = f"logged-models/{number}"
    words = {"status": "LOGGED_MODEL_READY"}
    done = answer(store, "PATCH", path, words).body["model"]["info"]
    assert (done["name"], done["status"]) == ("gpt", "LOGGED_MODEL_READY")
    tags = {"tags": [{"key": "a", "value": "b"}]}
    assert answer(store, "PATCH", f"{path}/tags", tags).status == 200
    assert store.model(number)["info"]["tags"] == tags["tags"]


def test_experiments_have_one_name(store: MlflowStore) -> None:
    number = store.add_experiment("demo", [])
    with pytest.raises(ConflictError):
        store.add_experiment("demo", [])
    words = {"experiment_name": "demo"}
    found = answer(store, "GET", "experiments/get-by-name", words).body
    assert found["experiment"]["experiment_id"] == number
