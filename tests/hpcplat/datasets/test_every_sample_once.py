"""50 kills at random moments, each with another number of ranks and batch size."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcplat.datasets import Cursor
from hpcplat.datasets.version import DatasetVersion
from hpcplat.processes import kill_group

SAMPLES = 997
KILLS = 50
PROGRAM = Path(__file__).with_name("killed_run.py")


@pytest.mark.slow
def test_kills_and_resizes_leave_every_sample_applied_once(
    tmp_path: Path, make_version: Callable[..., DatasetVersion]
) -> None:
    values = np.random.default_rng(0).permutation(SAMPLES)
    version = make_version({"x": values}, "columns")
    (tmp_path / "applied").mkdir()
    random_ = random.Random(50)
    worlds = set()
    for _ in range(KILLS):
        world = random_.randint(1, 6)
        worlds.add(world)
        run = _start(tmp_path, version, world, random_.randint(world, 40), 10**9)
        _kill_after_some_work(run, tmp_path, random_.uniform(0, 0.15))
    assert len(worlds) == 6
    epochs = _position(tmp_path) // SAMPLES + 1
    last = _start(tmp_path, version, 3, 32, epochs * SAMPLES)
    assert last.wait(120) == 0

    logs = sorted((tmp_path / "applied").iterdir())
    applied = np.concatenate([np.load(log) for log in logs])
    assert len(applied) == epochs * SAMPLES
    for epoch in applied.reshape(epochs, SAMPLES):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(SAMPLES))
    # And it is the order of a run that was never touched.
    untouched = values[Cursor(SAMPLES, 11).indices(0, epochs * SAMPLES)]
    np.testing.assert_array_equal(applied, untouched)


def _start(
    folder: Path, version: DatasetVersion, world: int, batch: int, limit: int
) -> subprocess.Popen[bytes]:
    words = [folder, version.folder, world, batch, limit]
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *map(str, words)], start_new_session=True
    )


def _kill_after_some_work(
    run: subprocess.Popen[bytes], folder: Path, delay: float
) -> None:
    """Kill all ranks at a random moment after a checkpoint was written."""
    before = _position(folder)
    deadline = time.monotonic() + 60
    while _position(folder) == before and time.monotonic() < deadline:
        assert run.poll() is None, "the run ended by itself"
        time.sleep(0.005)
    time.sleep(delay)
    kill_group(run.pid)
    run.wait()


def _position(folder: Path) -> int:
    checkpoint = folder / "checkpoint.json"
    if not checkpoint.exists():
        return 0
    return int(json.loads(checkpoint.read_text())["position"])
