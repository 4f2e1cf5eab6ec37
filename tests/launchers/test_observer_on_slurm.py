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


AUTOLOG = """
import lightning.pytorch as pl
import mlflow, torch

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

mlflow.pytorch.autolog(log_models=False)
x = torch.arange(8.0).reshape(8, 1) / 8
data = torch.utils.data.DataLoader(list(zip(x, 2 * x)), batch_size=2)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer = pl.Trainer(max_epochs=3, accelerator="cpu", enable_model_summary=False, **quiet)
with mlflow.start_run():
    mlflow.log_param("by_hand", 1)
    mlflow.log_metric("accuracy", 0.5, step=7)
    trainer.fit(Line(), data)
"""


def test_an_unmodified_mlflow_script_is_tracked(submit: Submit, tmp_path: Path) -> None:
    """What it logs by hand, and what autolog logs of a Lightning trainer for it."""
    script = tmp_path / "train.py"
    script.write_text(AUTOLOG)
    words = [sys.executable, "-W", "ignore", str(script)]
    job = submit(words, resources={"nodes": 1, "gpus_per_node": 1}).wait()
    log = job.folder.attempt(1).rank_log(0).read_text()
    assert job.state() == "COMPLETED", log
    found = history(job.folder.root)
    [by_hand] = found.curve("accuracy").points
    assert (by_hand.step, by_hand.value) == (7, 0.5)
    losses = found.curve("loss").points
    assert len(losses) == 3  # an epoch each
    assert losses[-1].value < losses[0].value
    [state] = (job.folder.root / "mlflow").glob("*/runs/*.json")
    run = json.loads(state.read_text())
    assert run["params"].items() >= {"by_hand": "1", "epochs": "3", "lr": "0.1"}.items()
    assert run["params"]["optimizer_name"] == "SGD"
    assert run["info"]["status"] == "FINISHED"
