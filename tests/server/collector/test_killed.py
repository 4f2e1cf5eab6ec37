"""The collector's own process, killed at random moments while a training writes."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcplat.tracking import MetricsWriter
from hpcplat.tracking.aimlink import aim_run_hash
from server.collector.catalogue import FolderCatalogue
from server.collector.collector import Collector

pytestmark = pytest.mark.slow


def start(aim: Path, runs: Path) -> subprocess.Popen[bytes]:
    words = ["-I", "-m", "server.collector", "--aim", str(aim), "--folders", str(runs)]
    return subprocess.Popen([sys.executable, *words])


def wait_until_it_collects(aim: Path) -> None:
    """Wait until a store of the run was written to since now."""
    begun, deadline = time.time(), time.monotonic() + 100
    while time.monotonic() < deadline:
        stores = (aim / "local" / ".aim" / "seqs" / "chunks").glob("*/*")
        if any(path.stat().st_mtime > begun for path in stores):
            return
        time.sleep(0.05)
    pytest.fail("the collector did not begin")


def test_nothing_is_lost_and_nothing_comes_twice_over_kill_9(
    tmp_path: Path, run: Path, see: Callable[[Path, str], Any]
) -> None:
    aim = tmp_path / "aim"
    (aim / "team").rename(aim / "local")
    chance = random.Random(9)
    step = 0
    for attempt in range(1, 4):
        writer = MetricsWriter(run, attempt=attempt)
        step = max(0, step - 50)
        process = start(aim, run)
        writer.log({"loss": step + attempt / 10, "lr": 0.5}, step=step)
        step += 1
        wait_until_it_collects(aim)
        until = time.monotonic() + chance.uniform(0.2, 1.5)
        while time.monotonic() < until:
            for _ in range(50):
                writer.log({"loss": step + attempt / 10, "lr": 0.5}, step=step)
                step += 1
            time.sleep(0.005)
        process.kill()
        process.wait(10)
        writer.close()
    last = Collector(FolderCatalogue([run]), aim)
    last.look()
    last.close()
    found: Mapping[tuple[str, str], list[tuple[int, float, float]]]
    found = see(aim / "local", aim_run_hash("run")).curves
    newest: dict[int, float] = {}
    superseded: dict[int, dict[int, float]] = {}
    _replay(run, newest, superseded)
    assert {s: v for s, v, _ in found["loss", ""]} == newest
    for attempt, values in superseded.items():
        context = f"superseded_by=attempt {attempt}"
        assert {s: v for s, v, _ in found["loss", context]} == values
    assert len(superseded) == 2


def _replay(
    run: Path, newest: dict[int, float], superseded: dict[int, dict[int, float]]
) -> None:
    """Say what must be there, straight from the run folder."""
    from hpcplat.tracking.reader import read_run
    from hpcplat.tracking.record import Numbers

    for file, record in read_run(run):
        if isinstance(record, Numbers):
            if record.step in newest:
                kept = superseded.setdefault(file.attempt, {})
                kept[record.step] = newest[record.step]
            newest[record.step] = record.values["loss"]
