"""A user's own PyTorch script: DDP and FSDP resume bit for bit; torchrun's variables."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcplat import eventlog
from hpcplat.allocation import RankPlacement, rank_variables
from hpcplat.checkpoints.folder import name_of, step_folders
from hpcplat.journal import read
from hpcplat.runfolder import RunFolder
from launchers.torchrun import torchrun_variables

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("tiny_training.py")
PATIENCE = 120


def placement(folder: Path, rank: int, world: int, port: int) -> RankPlacement:
    run = RunFolder(folder)
    return RankPlacement(
        rank, world, rank, world, 0, "127.0.0.1", port, run, 1, 0, "test"
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def start(folder: Path, world: int, *words: str) -> list[subprocess.Popen[bytes]]:
    folder.mkdir(exist_ok=True)
    port, started = free_port(), []
    for rank in range(world):
        variables = rank_variables(placement(folder, rank, world, port))
        with (folder / f"rank-{rank}.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "launchers.torchrun", str(SCRIPT), *words],
                    env={**os.environ, **variables, "OMP_NUM_THREADS": "1"},
                    cwd=folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    return started


def ended(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    try:
        return [process.wait(PATIENCE) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def train(folder: Path, world: int, *words: str) -> list[int]:
    return ended(start(folder, world, *words))


def losses(folder: Path) -> dict[int, float]:
    steps = read(RunFolder(folder).journal / "steps.txt")
    return {step: found.entry.loss for step, found in steps.items()}


def log(folder: Path) -> str:
    return (folder / "rank-0.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "world"), [("plain", 1), ("ddp", 2), ("fsdp", 2)])
def test_a_script_goes_on_bit_for_bit(tmp_path: Path, mode: str, world: int) -> None:
    assert train(tmp_path, world, mode, "10") == [0] * world, log(tmp_path)
    first = losses(tmp_path)
    assert sorted(first) == list(range(1, 11))
    for step in (8, 10):
        shutil.rmtree(tmp_path / "checkpoints" / name_of(step))
    assert train(tmp_path, world, mode, "10") == [0] * world, log(tmp_path)
    assert losses(tmp_path) == first
    assert "Resumed after step 4: every digest is that of the save" in log(tmp_path)


@pytest.mark.slow
def test_fsdp_goes_on_with_another_number_of_ranks_and_without_it(
    tmp_path: Path,
) -> None:
    assert train(tmp_path, 2, "fsdp", "4") == [0, 0], log(tmp_path)
    assert train(tmp_path, 1, "plain", "8") == [0], log(tmp_path)
    assert train(tmp_path, 2, "ddp", "12") == [0, 0], log(tmp_path)
    assert sorted(losses(tmp_path)) == list(range(1, 13))


@pytest.mark.slow
def test_a_bug_of_the_script_is_caught_by_the_journal(tmp_path: Path) -> None:
    assert train(tmp_path, 1, "plain", "10") == [0], log(tmp_path)
    for step in (8, 10):
        shutil.rmtree(tmp_path / "checkpoints" / name_of(step))
    assert train(tmp_path, 1, "plain", "10", "forget the schedule") == [1]
    assert "Step 6 was run again and its loss is not the same" in log(tmp_path)


@pytest.mark.slow
def test_asked_to_stop_it_saves_and_says_that_it_is_not_done(tmp_path: Path) -> None:
    ranks = start(tmp_path, 2, "ddp", "100000", "slow")
    deadline = time.monotonic() + PATIENCE
    while len(losses(tmp_path)) < 2:
        assert time.monotonic() < deadline, log(tmp_path)
        time.sleep(0.05)
    os.kill(ranks[1].pid, signal.SIGUSR2)
    assert ended(ranks) == [75, 75]
    done = max(losses(tmp_path))
    assert step_folders(tmp_path / "checkpoints")[0].name == name_of(done)
    kinds = [event.kind for event in eventlog.read(RunFolder(tmp_path).events)[0]]
    assert kinds[-1] == "training-stopped"


@pytest.mark.slow
def test_the_same_script_runs_outside_of_a_job(tmp_path: Path) -> None:
    names = ("RANK", "WORLD_SIZE", "HPCPLAT_RUN_FOLDER")
    environ = {k: v for k, v in os.environ.items() if k not in names}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "plain", "5"],
        env={**environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        timeout=PATIENCE,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "hpcplat-run")) == 5


def test_torchruns_promises_are_kept() -> None:
    place = placement(Path("/run"), 3, 4, 29500)
    found = torchrun_variables(place, {"OMP_NUM_THREADS": "8"})
    assert found["GROUP_WORLD_SIZE"] == "1"
    assert found["ROLE_RANK"] == "3"
    assert found["TORCHELASTIC_RUN_ID"] == "test"
    assert "OMP_NUM_THREADS" not in found, "what was set stays"


@pytest.mark.slow
def test_a_missing_script_is_told_in_one_line(tmp_path: Path) -> None:
    variables = rank_variables(placement(tmp_path, 0, 1, 29500))
    done = subprocess.run(
        [sys.executable, "-m", "launchers.torchrun", "nothing.py"],
        env={**os.environ, **variables},
        cwd=tmp_path,
        timeout=PATIENCE,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("InvalidError: nothing.py is not there. Write: python")
