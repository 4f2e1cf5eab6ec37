"""A job's dataset on its nodes' own disk, by the batch script of a real Slurm job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcplat.cli.main import main as hpcplat
from hpcplat.eventlog import EventKind

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter

READ = """
import hpcplat.run
run = hpcplat.run.current()
version = run.dataset()
print(version.folder, version.split("train").samples)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of datasets with one in it, which jobs see too."""
    folder = tmp_path / "datasets"
    monkeypatch.setenv("HPCPLAT_DATASETS", str(folder))
    text = tmp_path / "text"
    text.mkdir()
    for number in range(5):
        (text / f"{number}.txt").write_text(f"{number} and some words. " * 50)
    words = ["data", "ingest", "--text", str(text), "--name", "words"]
    assert hpcplat([*words, "--processes", "1"]) == 0
    return folder


def test_ranks_read_what_was_staged_once_a_node(
    submit: Submit, root: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "the node's disk"

    def run() -> Any:  # noqa: ANN401 - conftest.SlurmJob
        job = submit(
            [sys.executable, "-c", READ],
            data="words@latest",
            staging={"folder": str(disk)},
            resources={"nodes": 2, "tasks_per_node": 2},
        ).wait()
        assert job.state() == "COMPLETED", job.verdict()
        return job

    first = run()
    (copy,) = (disk / f"hpcplat-staged-{os.getuid()}").glob("[0-9a-f]*")
    for rank in range(4):
        assert first.log(rank) == f"{copy} 5\n"
    told = [event.what for event in first.events("data-staged")]
    assert len(told) == 2  # both nodes stand on one disk here: one copies, one waits
    assert any("to 100 %" in what for what in told)
    assert any("already" in what for what in told)
    second = run()
    assert all("already" in event.what for event in second.events("data-staged"))
    kinds = [event.kind for event in second.events()]
    assert kinds.index("data-staged") < kinds.index(EventKind.RANKS_STARTED)


def test_a_damaged_dataset_ends_the_job_before_its_first_step(
    submit: Submit, root: Path, tmp_path: Path
) -> None:
    shard = next(root.glob("words/versions/*/train/tokens/c.0"))
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(content)
    job = submit(
        [sys.executable, "-c", READ],
        data="words@latest",
        staging={"folder": str(tmp_path / "disk")},
    ).wait()
    assert job.state() == "FAILED"
    assert job.exit_code() == 1
    assert not job.events(EventKind.RANKS_STARTED)
    assert "c.0 is not what was written" in job.verdict()["reason"]
    assert "c.0 is not what was written" in job.folder.attempt(1).batch_log.read_text()


def test_what_cannot_be_staged_is_read_where_it_is(
    submit: Submit, root: Path, tmp_path: Path
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    job = submit(
        [sys.executable, "-c", READ],
        data="words@latest",
        staging={"folder": str(no_folder)},
    ).wait()
    assert job.state() == "COMPLETED", job.verdict()
    assert str(root / "words" / "versions") in job.log(0)
    (event,) = job.events("data-not-staged")
    assert "read where it is" in event.what
