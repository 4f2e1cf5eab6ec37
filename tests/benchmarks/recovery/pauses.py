"""Trains for a while with ranks that pause; prints what was taken for a fault: nothing.

    python tests/benchmarks/recovery/pauses.py [--minutes 10]

Each of four ranks holds its interpreter's lock for 0.05 to 1 s every five seconds or so,
as a garbage collection does, and each sync of a checkpoint's file takes up to half a
second more. Whatever is said of a rank that hangs or is slow, or of a node that is lost,
is a false alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from hpcplat.eventlog import EventKind
from tests.benchmarks.recovery.stage import Run, Stage, stage

ALARMS = (
    EventKind.RANK_HANGS,
    EventKind.RANK_SLOW,
    EventKind.RANK_FAILED,
    EventKind.NODE_LOST,
    EventKind.RECOVERING,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    asked = parser.parse_args()
    with stage(nodes=2) as here:
        run = _submit(here)
        run.until_steps(1)
        begun, first = time.monotonic(), run.step
        time.sleep(60 * asked.minutes)
        took, steps = time.monotonic() - begun, run.step - first
        alarms = [event.what for event in run.events(*ALARMS)]
        saved = len(run.events("checkpoint-saved"))
        run.cancel()
    print(
        f"{took / 60:.1f} minutes, {steps} steps of {took / max(steps, 1):.2f} s, "
        f"{saved} checkpoints: {len(alarms)} false alarms"
    )
    print(*alarms, sep="\n")


def _submit(here: Stage) -> Run:
    """Submit a training whose ranks pause."""
    folder = here.files(here.spec(0, 1))
    plan = json.loads(folder.plan.read_text())
    script = str(Path(__file__).with_name("pausedrank.py"))
    plan["argv"] = [sys.executable, script, str(folder.spec)]
    folder.plan.write_text(json.dumps(plan))
    return Run(here, here.sbatch(folder.script), folder)


if __name__ == "__main__":
    main()
