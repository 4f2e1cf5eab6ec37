"""What is noted beside the ranks of a real job."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcplat.tracking.curves import history
from hpcplat.tracking.lineage import lineage

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter

TENSORBOARD = """
import sys, time
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter()
for step in range(20):
    writer.add_scalar("loss", 1 / (step + 1), step)
writer.close()
"""


def test_an_unmodified_tensorboard_script_is_tracked(
    submit: Submit, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TENSORBOARD)
    words = [sys.executable, "-W", "ignore", str(script)]
    job = submit(words, resources={"nodes": 1, "gpus_per_node": 1}).wait()
    assert job.state() == "COMPLETED"
    points = history(job.folder.root).curve("loss").points
    assert [point.step for point in points] == list(range(20))
    assert points[4].value == pytest.approx(0.2)


def test_nodes_and_the_attempt_are_on_record(submit: Submit) -> None:
    job = submit(["sleep", "8"], resources={"nodes": 2, "gpus_per_node": 1}).wait()
    assert job.state() == "COMPLETED"
    found = history(job.folder.root, sources=())
    busy = [c for c in found.curves if c.name == "system/cpu_percent"]
    assert len({curve.source for curve in busy}) == 2
    record = lineage(job.folder.root)
    [attempt] = record["attempts"]
    assert attempt["slurm"]["job_id"] == job.job_id
    assert len(attempt["nodes"]) == 2
    assert record["environment"]["python"]["version"]
    assert json.dumps(record)


MLFLOW = """
import mlflow
with mlflow.start_run():
    mlflow.log_param("lr", 0.1)
    for step in range(10):
        mlflow.log_metric("accuracy", step / 10, step=step)
"""


def test_an_unmodified_mlflow_script_is_tracked(submit: Submit, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MLFLOW)
    words = [sys.executable, "-W", "ignore", str(script)]
    job = submit(words, resources={"nodes": 1, "gpus_per_node": 1}).wait()
    assert job.state() == "COMPLETED"
    points = history(job.folder.root).curve("accuracy").points
    assert [point.value for point in points] == [step / 10 for step in range(10)]
    [state] = (job.folder.root / "mlflow").glob("*/runs/*.json")
    run = json.loads(state.read_text())
    assert run["params"] == {"lr": "0.1"}
    assert run["info"]["status"] == "FINISHED"
