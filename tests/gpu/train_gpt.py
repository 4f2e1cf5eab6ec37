"""One GPU: tokens/s and MFU beside Megatron's own loop, and a resume bit for bit.

    python tests/gpu/train_gpt.py

Needs hpcplat[all] and one NVIDIA GPU; takes some minutes. Where there are more, it uses the
first of CUDA_VISIBLE_DEVICES. Transformer Engine is used where it is installed. Without a
GPU the same steps are run on a tiny model, to see that the script itself works. Exit code 1
if the resume was not bit-identical, or if something is missing: one line says what.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcplat.checkpoints.folder import name_of
from hpcplat.cli.main import main as hpcplat
from hpcplat.jobs import spec_of
from hpcplat.journal import Expected, read
from hpcplat.training import training_of
from launchers.megatron.telemetry import measure_of_mfu, peak_flops

ON_GPU = torch.cuda.is_available()
STEP_RANKS = Path(__file__).parents[1] / "benchmarks" / "training" / "step_ranks.py"
PRESET = "gpt2-355m" if ON_GPU else "gpt-tiny"
# 4 samples at a time: without Transformer Engine the attention of 8 takes some 30 GB.
LENGTH, BATCH, MICRO = (1024, 32, 4) if ON_GPU else (32, 4, 2)


def main() -> int:
    """Measure, resume, and print what was found."""
    for line in conditions():
        print(line, flush=True)
    with tempfile.TemporaryDirectory(prefix="hpcplat-gpu-") as name:
        folder = Path(name)
        spec = spec_for(make_dataset(folder), folder / "data")
        times = speed(folder / "speed", spec)
        same = resume(folder / "resume", spec)
    # Only now is the GPU looked at here: it may be one that takes one process at a time.
    report(times, spec)
    print(f"Resume in deterministic mode: {'bit-identical' if same else 'DIFFERS'}")
    return 0 if same else 1


def conditions() -> list[str]:
    """Return what it will run with, in words; exits where that can't work.

    Nothing here starts CUDA: the GPU may be one that takes one process at a time.
    """
    if ON_GPU:
        return [f"GPU: {gpu()}", f"NCCL: {nccl()}", f"Transformer Engine: {engine()}"]
    build = "is built without CUDA" if torch.version.cuda is None else "finds no GPU"
    return [
        f"GPU: none, torch {torch.__version__} {build}. What follows is a tiny model on",
        "     the CPU: it shows that this script works, and nothing of a GPU.",
        "NCCL: not used; gloo instead.",
        "Transformer Engine: not used; Megatron's own layers.",
    ]


def gpu() -> str:
    """Return how many GPUs there are, and for what torch is built."""
    count, built = torch.cuda.device_count(), f"CUDA {torch.version.cuda}"
    return f"{count} seen by torch {torch.__version__} ({built}); one is used."


def nccl() -> str:
    """Return NCCL's version; exits where torch has none."""
    if not dist.is_nccl_available():
        sys.exit(f"torch {torch.__version__} has no NCCL: install a build that has it.")
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def engine() -> str:
    """Return Transformer Engine's version, or how to get it."""
    missing = (
        "not installed, so Megatron's own layers are measured"
        " (pip install 'transformer-engine[pytorch]')."
    )
    return version_of("transformer-engine") or missing


def version_of(distribution: str) -> str:
    """Return what version is installed; empty where none is."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def make_dataset(folder: Path) -> str:
    """Ingest Python's own source as bytes."""
    source = folder / "text"
    source.mkdir()
    for file in sorted(Path(os.__file__).parent.glob("*.py")):
        (source / f"{file.stem}.txt").write_bytes(file.read_bytes())
    words = ["data", "ingest", "--text", str(source), "--name", "source"]
    if hpcplat([*words, "--root", str(folder / "data")]) != 0:
        sys.exit("the dataset could not be made")
    version = next((folder / "data" / "source" / "versions").iterdir())
    return f"source@{version.name[:12]}"


def spec_for(dataset: str, root: Path) -> dict[str, Any]:
    """Return the job: a GPT in bf16 on one rank."""
    return {
        "name": "one-gpu",
        "kind": "train",
        "preset": PRESET,
        "data": dataset,
        "checkpoint": {"every": 10, "keep_last": 2},
        "settings": {
            "steps": 1000,
            "data": {"root": str(root), "sequence_length": LENGTH},
            "batch": {"global_size": BATCH, "micro_size": MICRO},
            "precision": {"format": "bf16"},
        },
    }


def speed(folder: Path, spec: dict[str, Any]) -> dict[str, float]:
    """Run both loops in turns; return what they took."""
    run(folder, spec, [str(STEP_RANKS)])
    found: dict[str, float] = json.loads((folder / "times.json").read_text())
    return found


def report(found: dict[str, float], spec: dict[str, Any]) -> None:
    """Print step time, tokens/s and MFU of both loops."""
    training = training_of(spec_of(spec))
    tokens = BATCH * LENGTH
    flops = training.model.flops_per_token(LENGTH) * tokens
    peak = peak_flops("bf16")
    device = torch.cuda.get_device_name() if ON_GPU else "CPU (a tiny model)"
    print(
        f"\n{PRESET}, bf16, {tokens} tokens a step, {device}, torch {torch.__version__}"
    )
    print(f"{'':20}{'step, ms':>10}{'tokens/s':>12}{'MFU':>8}")
    for name, seconds in (
        ("hpcplat", found["ours"]),
        ("Megatron alone", found["plain"]),
    ):
        mfu = f"{flops / seconds / peak:.1%}" if peak else "-"
        print(f"{name:20}{seconds * 1e3:10.1f}{tokens / seconds:12.0f}{mfu:>8}")
    print(
        f"ratio {found['ratio']:.3f}; waiting for data {found['data']:.2%} of a step;"
    )
    print(f"memory {found['memory']:.1f} GiB (both models).")
    print(measure_of_mfu(training, peak, 1) if peak else "No GPU: MFU is not known.")


def resume(folder: Path, spec: dict[str, Any]) -> bool:
    """Train 12 steps, lose those after the 6th, train them again: the same bits?"""
    settings = spec["settings"]
    again = {**spec, "checkpoint": {"every": 6, "keep_last": 5}}
    again["settings"] = {**settings, "steps": 12, "deterministic": True}
    words = ["-m", "launchers.megatron"]
    run(folder, again, words)
    first = entries(folder)
    shutil.rmtree(folder / "checkpoints" / name_of(12))
    run(folder, again, words)
    return entries(folder) == first and sorted(first) == list(range(1, 13))


def entries(folder: Path) -> dict[int, Any]:
    """Return the journal's entries by step."""
    found: dict[int, Expected] = read(folder / "journal" / "steps.txt")
    return {step: one.entry for step, one in found.items()}


def run(folder: Path, spec: dict[str, Any], words: list[str]) -> None:
    """Run one rank to its end; stop with its log if it fails."""
    folder.mkdir(exist_ok=True)
    path = folder / "spec.json"
    path.write_text(json.dumps(spec))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "HPCPLAT_RUN_FOLDER": str(folder),
        "HPCPLAT_ATTEMPT": "1",
        "HPCPLAT_GENERATION": "0",
        "HPCPLAT_JOB_KEY": "gpu",
    }
    done = subprocess.run(
        [sys.executable, *words, str(path)],
        env={**os.environ, **place},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])


if __name__ == "__main__":
    sys.exit(main())
