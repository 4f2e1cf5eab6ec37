"""How long a save holds a step up: ours, a memcpy of the bytes, torch's async_save."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.launchers.megatron.conftest import Trainer, free_port

SCRIPT = Path(__file__).with_name("save_rank.py")


def run(_train: Trainer, folder: Path) -> None:
    """Print the medians of interleaved rounds."""
    folder.mkdir()
    variables = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        print(done.stderr[-3000:])
        return
    found = json.loads(done.stdout.splitlines()[-1])
    copy = found["memcpy"][0]
    print(
        f"\n| save of {found['megabytes']:.0f} MB | step waits, ms | ratio to memcpy | all of it, s |"
    )
    print("|---|---|---|---|")
    print(f"| memcpy | {copy * 1e3:.0f} | 1.00 | |")
    for name in ("hpcplat", "torch DCP async_save", "torch DCP save"):
        stall, whole = found[name]
        ratio = found["ratios"][name]  # the median of the rounds' own
        print(f"| {name} | {stall * 1e3:.0f} | {ratio:.2f} | {whole:.2f} |")
    print("\nLimits: hpcplat at most 1.5 x memcpy, and less than async_save. hpcplat's")
    print("time includes SHA-256 of every file and a digest of every tensor.")
