"""Trains for tests: ranks forked from one warm process, on a tiny dataset of text."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hpcplat import eventlog
from hpcplat.allocation import RankPlacement, rank_variables
from hpcplat.checkpoints.folder import step_folders
from hpcplat.cli.main import main as hpcplat
from hpcplat.eventlog import RunEvent
from hpcplat.journal import Entry, read
from hpcplat.runfolder import RunFolder
from launchers.warm import RankStart, WarmProcess

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 150.0  # seconds for one training of a few steps on a busy machine

SPEC: dict[str, Any] = {
    "name": "tiny",
    "kind": "train",
    "preset": "gpt",
    "checkpoint": {"every": 4},
    "settings": {
        "data": {"sequence_length": 16},
        "batch": {"global_size": 8, "micro_size": 1},
        "steps": 8,
        "optimizer": {"learning_rate": 3e-3},
        "model": {
            "num_layers": 4,
            "hidden_size": 32,
            "num_attention_heads": 4,
            "vocab_size": 300,
            "max_sequence_length": 16,
        },
    },
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    found = deepcopy(base)
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(found.get(name), dict):
            found[name] = merged(found[name], value)
        else:
            found[name] = value
    return found


@dataclass
class Training:
    """A run folder, and what its ranks did."""

    folder: RunFolder
    codes: dict[int, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return set(self.codes.values()) == {0}

    @property
    def entries(self) -> dict[int, Entry]:
        path = self.folder.journal / "steps.txt"
        return {step: found.entry for step, found in read(path).items()}

    @property
    def losses(self) -> list[float]:
        return [entry.loss for _, entry in sorted(self.entries.items())]

    @property
    def events(self) -> list[RunEvent]:
        return list(eventlog.read(self.folder.events)[0])

    def event(self, kind: str) -> RunEvent:
        return next(event for event in self.events if event.kind == kind)

    @property
    def steps_saved(self) -> list[int]:
        paths = step_folders(self.folder.checkpoints)
        return sorted(int(path.name.removeprefix("step-")) for path in paths)

    def log(self, rank: int = 0) -> str:
        return (self.folder.root / f"rank-{rank}.log").read_text(errors="replace")

    def forget(self, *steps: int) -> None:
        """Remove checkpoints, as if the run had died before they were written."""
        for step in steps:
            shutil.rmtree(self.folder.checkpoints / f"step-{step:010d}")


class Trainer:
    """Starts ranks and waits for them, at most four at a time."""

    def __init__(
        self, warm: WarmProcess, dataset: str, root: Path, patience: float = PATIENCE
    ) -> None:
        self.warm, self.dataset, self.root = warm, dataset, root
        self.patience = patience
        self.attempts = 0

    def spec(self, world: int, changes: dict[str, Any]) -> dict[str, Any]:
        base = merged(SPEC, {"data": self.dataset})
        base["resources"] = {"nodes": 1, "tasks_per_node": world}
        base["settings"]["data"]["root"] = str(self.root)
        return merged(base, changes)

    def start(
        self,
        folder: Path,
        world: int,
        changes: dict[str, Any],
        program: tuple[str, ...] = ("-m", "launchers.megatron"),
    ) -> list[int]:
        """Fork the ranks; returns their process ids by rank."""
        folder.mkdir(exist_ok=True)
        self.attempts += 1
        path = folder / "spec.json"
        path.write_text(json.dumps(self.spec(world, changes)))
        port = free_port()
        argv = (sys.executable, *program, str(path))
        return [
            self.warm.start(
                RankStart(
                    argv,
                    {**os.environ, **self.variables(folder, rank, world, port)},
                    str(folder),
                    str(folder / f"rank-{rank}.log"),
                )
            )
            for rank in range(world)
        ]

    def variables(
        self, folder: Path, rank: int, world: int, port: int
    ) -> dict[str, str]:
        place = RankPlacement(
            rank,
            world,
            rank,
            world,
            0,
            "127.0.0.1",
            port,
            RunFolder(folder),
            self.attempts,
            0,
            "test",
        )
        return {**rank_variables(place), "OMP_NUM_THREADS": "1"}

    def wait(self, folder: Path, pids: list[int]) -> Training:
        """Wait for the ranks; once one fails the others are killed, as an agent does."""
        training, running = Training(RunFolder(folder)), dict(enumerate(pids))
        deadline = time.monotonic() + self.patience
        try:
            while running:
                _reap(running, training)
                if any(training.codes.values()) and not _only_early(training):
                    time.sleep(1.0)  # let the others say what they have to say
                    break
                assert time.monotonic() < deadline, training.log()
                time.sleep(0.01)
        finally:
            for rank, pid in running.items():
                _kill(pid)
                training.codes[rank] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return training

    def __call__(
        self,
        folder: Path,
        world: int = 1,
        changes: dict[str, Any] | None = None,
        program: tuple[str, ...] = ("-m", "launchers.megatron"),
    ) -> Training:
        return self.wait(folder, self.start(folder, world, changes or {}, program))


def _only_early(training: Training) -> bool:
    return set(training.codes.values()) <= {0, 75}


def _reap(running: dict[int, int], training: Training) -> None:
    for rank, pid in list(running.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            training.codes[rank] = os.waitstatus_to_exitcode(status)
            del running[rank]


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def text_files(folder: Path) -> None:
    """Write text with some structure, so that there is something to learn."""
    random = Random(1)
    words = ["the", "node", "died", "and", "came", "back", "with", "its", "state", "."]
    for number in range(12):
        lines = (" ".join(random.choices(words, k=9)) for _ in range(120))
        (folder / f"{number}.txt").write_text("\n".join(lines))


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmProcess]:
    """A process that has imported Megatron; its ranks become children of ours."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    process = WarmProcess(["launchers.megatron.preload"], environment)
    yield process
    process.close()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture(scope="session")
def datasets_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory, datasets_root: Path) -> str:
    """A tiny dataset of text by name@version."""
    source = tmp_path_factory.mktemp("text")
    text_files(source)
    words = ["data", "ingest", "--text", str(source), "--name", "tiny"]
    words += ["--root", str(datasets_root), "--split", "validation=0.2"]
    assert hpcplat([*words, "--processes", "1"]) == 0
    version = next((datasets_root / "tiny" / "versions").iterdir())
    return f"tiny@{version.name[:12]}"


@pytest.fixture(scope="session")
def train(warm: WarmProcess, dataset: str, datasets_root: Path) -> Trainer:
    """Train for a few steps: ``train(folder, world, changes of the spec)``."""
    return Trainer(warm, dataset, datasets_root)


@pytest.fixture(scope="session")
def one_process(
    train: Trainer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Training]:
    """The same training in one process, once for each change of the spec."""
    known: dict[str, Training] = {}

    def run(changes: dict[str, Any]) -> Training:
        key = json.dumps(changes, sort_keys=True)
        if key not in known:
            known[key] = train(tmp_path_factory.mktemp("one"), 1, changes)
            assert known[key].ok, known[key].log()
        return known[key]

    return run


@pytest.fixture(scope="session")
def merge() -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    return merged
