"""GPU metrics from a library with NVML's own functions and structures; and without one."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcplat.runfolder import RunFolder
from hpcplat.tracking.gpu_tally import GpuTally, tally_of
from hpcplat.tracking.machine import Machine, own_gpus
from hpcplat.tracking.nvml import Gpus, GpuState
from hpcplat.tracking.observer import Observer

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A libnvidia-ml of four GPUs: 1 can't be asked, 3 is cut up (MIG)."""
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml.c")
    words = ["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(path), str(source)]
    subprocess.run(words, check=True)
    return str(path)


@pytest.fixture
def lost_gpu(library: str) -> Iterator[int]:
    """A GPU that has fallen off the bus."""
    ctypes.CDLL(library).lose(0, 1)
    yield 0
    ctypes.CDLL(library).lose(0, 0)


@needs_compiler
def test_each_gpu_tells_what_it_can_under_the_drivers_number(library: str) -> None:
    whole, third, cut = Gpus(library).states()
    assert whole == GpuState(0, 90, 5_000_000_000, 150_754_820_096, 700.5, 60)
    assert (third.number, third.utilization) == (2, 92)  # though 1 can't be asked
    assert cut == GpuState(3, None, 20_000_000_000, 150_754_820_096, 700.5, 63)


@needs_compiler
def test_a_gpu_that_is_lost_in_the_middle_says_nothing_and_others_go_on(
    library: str, lost_gpu: int
) -> None:
    gpus = Gpus(library)
    assert gpus.states([lost_gpu]) == [GpuState(0, None, None, None, None, None)]
    metrics = Machine((lost_gpu, 2), gpus).read()
    assert {name for name in metrics if "gpu" in name} == {
        "system/gpu2_percent",
        "system/gpu2_power_w",
        "system/gpu2_temperature_c",
        "system/gpu2_memory_gb",
    }
    ctypes.CDLL(library).lose(lost_gpu, 0)
    assert Machine((lost_gpu,), gpus).read()["system/gpu0_percent"] == 90


@needs_compiler
def test_a_job_sees_its_own_gpus_alone_however_they_are_numbered(library: str) -> None:
    def numbers(environ: dict[str, str]) -> set[str]:
        metrics = Machine(own_gpus(environ), Gpus(library)).read()
        return {name[10] for name in metrics if name.endswith("_power_w")}

    assert numbers({"SLURM_STEP_GPUS": "2"}) == {"2"}
    assert numbers({"SLURM_JOB_GPUS": "0,3"}) == {"0", "3"}
    assert numbers({}) == {"0", "2", "3"}
    # Its control group shows a job of four no more than four, numbered anew.
    assert numbers({"SLURM_JOB_GPUS": "4,5,6,7"}) == {"0", "2", "3"}
    assert numbers({"SLURM_JOB_GPUS": "1"}) == set()


@needs_compiler
def test_an_observer_counts_the_looks_at_gpus(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path)
    run.attempt(1).root.mkdir(parents=True)
    on_gpus = Machine(None, Gpus(library))
    monkeypatch.setattr("hpcplat.tracking.observer.Machine", lambda _: on_gpus)
    observer = Observer(run, 1, "n1", os.getpid())
    observer.look()
    observer.close()
    written = run.attempt(1).gpu_tally("n1").read_bytes()
    assert tally_of(written) == GpuTally(samples=2, idle=0)  # two tell a load


@pytest.mark.parametrize("name", ["libnothing-like-it.so.1", "libc.so.6"])
def test_without_a_driver_there_are_no_gpus(name: str) -> None:
    gpus = Gpus(name)
    assert len(gpus) == 0
    assert gpus.states() == gpus.states([0]) == []
    assert not [metric for metric in Machine((0,), gpus).read() if "gpu" in metric]
