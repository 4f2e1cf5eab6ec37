"""From nothing to the first step: a warm process and forks, beside torchrun."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hpcplat.runfolder import RunFolder
from launchers.warm import WarmProcess
from tests.benchmarks.training.layouts import laid_out
from tests.launchers.megatron.conftest import Trainer, merged

ROUNDS, WORLD, PATIENCE = 3, 4, 180.0


def run(train: Trainer, folder: Path) -> None:
    """Print the seconds from the command to the first step's loss."""
    folder.mkdir()
    changes = merged(laid_out(tensor=2, pipeline=2), {"checkpoint": {"every": 1000}})
    times: dict[str, list[float]] = {"torchrun": [], "cold": [], "warm": []}
    for number in range(ROUNDS):
        times["torchrun"].append(torchrun(train, folder / f"t{number}", changes))
        times["cold"].append(cold(train, folder / f"c{number}", changes))
        times["warm"].append(warm(train, folder / f"w{number}", changes))
    base = statistics.median(times["torchrun"])
    print("\n| to the first step, TP2 x PP2, one machine | seconds | ratio | limit |")
    print("|---|---|---|---|")
    print(f"| torchrun --nproc-per-node 4 | {base:.1f} | 1.00 | |")
    for name, limit, words in (
        ("cold", "0.6", "one import per node, ranks forked from it"),
        ("warm", "", "again, from the same warm process"),
    ):
        taken = statistics.median(times[name])
        print(f"| {words} | {taken:.1f} | {taken / base:.2f} | {limit} |")


def torchrun(train: Trainer, folder: Path, changes: dict[str, Any]) -> float:
    """Start the launcher under torchrun."""
    folder.mkdir()
    path = folder / "spec.json"
    path.write_text(json.dumps(train.spec(WORLD, changes)))
    place = {
        "HPCPLAT_RUN_FOLDER": str(folder),
        "HPCPLAT_ATTEMPT": "1",
        "HPCPLAT_GENERATION": "0",
        "HPCPLAT_JOB_KEY": "bench",
        "NODE_RANK": "0",
        "OMP_NUM_THREADS": "1",
    }
    words = ["-m", "torch.distributed.run", "--standalone"]
    words += ["--nproc-per-node", str(WORLD), "-m", "launchers.megatron", str(path)]
    begun = time.monotonic()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, **place},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return _until_first_step(folder, begun)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def cold(train: Trainer, folder: Path, changes: dict[str, Any]) -> float:
    """Start a warm process, and fork the ranks from it once it has imported all."""
    begun = time.monotonic()
    process = WarmProcess(["launchers.megatron.preload"], dict(os.environ))
    try:
        own = Trainer(process, train.dataset, train.root)
        return _forked(own, folder, changes, begun)
    finally:
        process.close()


def warm(train: Trainer, folder: Path, changes: dict[str, Any]) -> float:
    """Fork the ranks from a process that is there."""
    return _forked(train, folder, changes, time.monotonic())


def _forked(
    train: Trainer, folder: Path, changes: dict[str, Any], begun: float
) -> float:
    pids = train.start(folder, WORLD, changes)
    try:
        return _until_first_step(folder, begun)
    finally:
        for pid in pids:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _until_first_step(folder: Path, begun: float) -> float:
    journal = RunFolder(folder).journal / "steps.txt"
    while time.monotonic() - begun < PATIENCE:
        if journal.exists() and "\n1 " in journal.read_text():
            return time.monotonic() - begun
        time.sleep(0.01)
    raise TimeoutError(f"no first step within {PATIENCE:g} s in {folder}")
