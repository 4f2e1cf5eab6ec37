"""A hundred honest resumes: none may raise an alarm, all bits must be the same."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from random import Random

from hpcplat.checkpoints.folder import name_of
from tests.benchmarks.training.layouts import laid_out
from tests.launchers.megatron.conftest import Trainer, merged

RESUMES, STEPS = 100, 8
KINDS = {
    "TP2, dropout 0.1": merged(
        laid_out(tensor=2), {"settings": {"model": {"hidden_dropout": 0.1}}}
    ),
    "PP2": laid_out(pipeline=2),
    "DP2, distributed optimizer": {"settings": {"optimizer": {"distributed": True}}},
    "TP2, bf16": merged(
        laid_out(tensor=2), {"settings": {"precision": {"format": "bf16"}}}
    ),
}


def run(train: Trainer, folder: Path) -> None:
    """Resume again and again from a random step, and count."""
    folder.mkdir()
    random = Random(1)
    print("\n| honest resumes | of | steps run again, equal bit for bit | alarms |")
    print("|---|---|---|---|")
    for name, changes in KINDS.items():
        keep = merged(changes, {"checkpoint": {"every": 1, "keep_last": 100}})
        run = train(folder / name, 2, keep)
        if not run.ok:  # nothing can be said of resuming
            sys.exit(run.log()[-3000:])
        first = run.entries
        repeated = alarms = 0
        for _ in range(RESUMES // len(KINDS)):
            step = random.randint(1, STEPS - 1)
            for later in range(step + 1, STEPS + 1):
                shutil.rmtree(folder / name / "checkpoints" / name_of(later))
            again = train(folder / name, 2, keep)
            alarms += not again.ok or again.entries != first
            repeated += STEPS - step
        print(
            f"| {name} | {RESUMES // len(KINDS)} | {repeated} | {alarms} |", flush=True
        )
