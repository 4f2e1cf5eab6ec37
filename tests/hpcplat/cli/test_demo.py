"""The demo, as a newcomer runs it; and interrupted wherever it may be."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcplat.cli.demo import _what_next
from hpcplat.cluster import ClusterSpec, census
from hpcplat.errors import ExitCode

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture
def folder(new_spec: Callable[..., ClusterSpec]) -> Iterator[Path]:
    folder = new_spec().folder
    yield folder
    # A demo that was killed in the middle leaves its service to this.
    subprocess.run(command(folder, "--down"), check=True, stdout=subprocess.DEVNULL)


def command(folder: Path, *words: str) -> list[str]:
    start = [sys.executable, "-m", "hpcplat.cli.main", "demo"]
    return [*start, "--folder", str(folder), *words]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(folder, *words), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_ranks_on_two_nodes_each_with_its_gpu(folder: Path) -> None:
    first = run(folder, "--hello").stdout
    assert [line.strip() for line in first.splitlines() if "rank " in line] == [
        "rank 0 of 4 on n1: CUDA_VISIBLE_DEVICES=0",
        "rank 1 of 4 on n1: CUDA_VISIBLE_DEVICES=1",
        "rank 2 of 4 on n2: CUDA_VISIBLE_DEVICES=0",
        "rank 3 of 4 on n2: CUDA_VISIBLE_DEVICES=1",
    ]
    assert "The job is COMPLETED." in first
    again = run(folder, "--hello").stdout
    assert again == first.replace("Job 1:", "Job 2:")
    census.kill_all(lambda: census.members(folder))  # as a reboot would
    assert run(folder, "--hello").stdout == first
    assert run(folder, "--down").stdout == "The demo is gone.\n"
    assert_nothing_is_left(folder)
    assert run(folder, "--down").stdout == "No demo was there.\n"


@pytest.mark.parametrize("moment", ["Slurm", "Job", "It listens"])
def test_ctrl_c_leaves_nothing(folder: Path, moment: str) -> None:
    """As soon as the line that begins with these words is printed."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as demo:
        assert demo.stdout
        while not demo.stdout.readline().strip().startswith(moment):
            assert demo.poll() is None, demo.communicate()
        demo.send_signal(signal.SIGINT)
        _, complaint = demo.communicate(timeout=60)
    assert demo.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in complaint
    assert complaint.splitlines()[-1] == "hpcplat: taking the demo down (10 s) …"
    assert_nothing_is_left(folder)


@pytest.mark.timeout(900)  # two trainings
def test_a_node_dies_training_goes_on_and_the_same_bits_come_out(
    folder: Path,
) -> None:
    told = run(folder, "--verify", "--steps", "45").stdout
    assert ": the power of n2 is cut." in told
    assert "n2 died; n3 took its place." in told
    assert "Steps lost: none." in told or "with the same bits." in told
    assert "The same bits: nothing was lost." in told
    assert f"hpcplat cluster revive-node n2 --folder {folder}" in told
    assert re.search(r"restart at \d+: attempt 1 on n1\n", told)
    assert (folder / "demo" / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert run(folder, "--down").stdout == "The demo is gone.\n"
    assert_nothing_is_left(folder)


def test_the_node_that_died_is_the_one_to_revive() -> None:
    assert "revive-node n7 --name demo" in _what_next("", "n7")
    assert "kill-node n2 --folder x" in _what_next(" --folder x", None)


def assert_nothing_is_left(folder: Path) -> None:
    assert not folder.exists()
    assert not census.members(folder)
