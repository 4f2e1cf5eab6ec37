"""What people have already, writing to a run folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from hpcplat.allocation import rank_variables
from hpcplat.runfolder import RunFolder
from hpcplat.tracking import MetricsWriter
from hpcplat.tracking.curves import history
from hpcplat.tracking.job_writer import writer_of_job
from hpcplat.tracking.layout import metrics_files
from hpcplat.tracking.reader import read_run
from hpcplat.tracking.record import Histogram, Media, Text
from hpcplat.tracking.tensorboard import SummaryWriter


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment that the agent gives to rank 0."""
    from hpcplat.allocation import RankPlacement

    place = RankPlacement(0, 2, 0, 2, 0, "n1", 29500, RunFolder(tmp_path), 3, 0, "k")
    for name, value in rank_variables(place).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_a_rank_s_writer_knows_its_place(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, own = writer_of_job(), writer_of_job(every_rank=True)
    monkeypatch.setenv("RANK", "1")
    assert writer_of_job() is None
    assert main is not None
    assert own is not None
    for writer in (main, own):
        writer.log({"loss": 1.0}, step=1)
        writer.close()
    assert [(f.attempt, f.source) for f in metrics_files(job)] == [
        (3, "main"),
        (3, "rank-0"),
    ]


def test_outside_of_a_job_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPCPLAT_RUN_FOLDER", raising=False)
    assert writer_of_job() is None
    with SummaryWriter("runs/x") as writer:
        writer.add_scalar("loss", 1.0, 1)
        writer.flush()


def test_a_summary_writer(job: Path) -> None:
    import numpy as np
    import torch
    from matplotlib.figure import Figure

    with SummaryWriter(comment="x", flush_secs=3) as writer:
        for step in range(5):
            writer.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
        writer.add_scalar("unnumbered", 1.0)
        writer.add_scalar("unnumbered", 2.0)
        writer.add_scalars("both", {"a": 1, "b": np.float32(2)}, 7)
        writer.add_text("note", "hello", 1)
        writer.add_histogram("weights", torch.randn(100), 1, bins="auto")
        writer.add_image("chw", np.zeros((3, 4, 5), np.uint8), 1)
        writer.add_image("hw", torch.zeros(4, 5), 1, dataformats="HW")
        writer.add_figure("figure", Figure(), 1)
        writer.add_hparams({"lr": 0.1}, {"score": 3.0})
    found = history(job)
    assert [p.value for p in found.curve("loss").points][1] == 0.5
    assert [p.step for p in found.curve("unnumbered").points] == [0, 1]
    assert found.curve("both/b").points[0].value == 2.0
    assert found.lost == 0
    records = [entry.record for entry in read_run(job)]
    texts = {r.name: r.text for r in records if isinstance(r, Text)}
    assert texts == {"note": "hello", "hparams/lr": "0.1"}
    assert {r.name for r in records if isinstance(r, Media)} == {"chw", "hw", "figure"}
    [weights] = [r for r in records if isinstance(r, Histogram)]
    assert sum(weights.counts) == 100


LIGHTNING = """
import sys, torch
from lightning.pytorch import LightningModule, Trainer
from hpcplat.tracking import MetricsWriter
from hpcplat.tracking.lightning import HpcplatLogger

class Model(LightningModule):
    def __init__(self, width):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)
    def training_step(self, batch, index):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

data = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4)
trainer = Trainer(logger=HpcplatLogger(MetricsWriter(sys.argv[1])), max_epochs=1,
                  log_every_n_steps=1, enable_progress_bar=False, accelerator="cpu",
                  enable_checkpointing=False, enable_model_summary=False)
trainer.fit(Model(4), data)
"""

TRANSFORMERS = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer
from transformers import TrainingArguments
from hpcplat.tracking import MetricsWriter
from hpcplat.tracking.huggingface import HpcplatCallback

config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1,
                    num_attention_heads=2, intermediate_size=8)
rows = [{"input_ids": torch.randint(0, 20, (6,)), "labels": torch.tensor(n % 2)}
        for n in range(16)]
arguments = TrainingArguments(sys.argv[1] + "/out", max_steps=4, logging_steps=1,
                              per_device_train_batch_size=4, report_to=[], use_cpu=True,
                              save_strategy="no", disable_tqdm=True)
callback = HpcplatCallback(MetricsWriter(sys.argv[1]))
Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows,
        callbacks=[callback]).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "script", "steps"),
    [("lightning", LIGHTNING, range(8)), ("transformers", TRANSFORMERS, range(1, 5))],
)
def test_trainers_log_through_their_own_hooks(
    tmp_path: Path, module: str, script: str, steps: range
) -> None:
    pytest.importorskip(module)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [p.step for p in history(tmp_path).curve("loss").points] == list(steps)


def test_a_writer_of_one_s_own_is_taken(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    with SummaryWriter(writer=writer) as summary:
        summary.add_scalar("x", 1, 2)
    assert history(tmp_path).curve("x").points[0].step == 2


def test_a_run_logs_its_own_curve_and_each_rank_s(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpcplat.allocation import rank_placement
    from hpcplat.run import Run

    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        run = Run(rank_placement())
        run.log({"loss": 1.0}, 1)
        run.log({"memory": 2.0}, 1, per_rank=True)
        run._rank_writer.close()
        run._writer.close()
    found = history(job, sources=())
    assert {(c.name, c.source) for c in found.curves} == {
        ("loss", "main"),
        ("memory", "rank-0"),
        ("memory", "rank-1"),
    }
