"""Kills nodes at random times for a while; prints the effective training time ratio.

    python tests/benchmarks/recovery/effective.py [--kills 20] [--mean 60] [--seed 1]

Steps that last, so that a step counts; the times between kills are exponential. With
``--again`` the same steps are made once more without any kill, and the digests of both
are held against each other.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from hpcplat import eventlog
from hpcplat.checkpoints.folder import newest_whole
from hpcplat.eventlog import EventKind
from hpcplat.journal import read
from hpcplat.ledger import ledger
from hpcplat.runfolder import RunFolder
from tests.benchmarks.recovery.stage import Run, Stage, stage, until

BATCH = 144  # samples: a step of 0.7 s and more on two cores
SETTLE = 3  # steps between a recovery and the next kill, at least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--mean", type=float, default=60.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="compare the digests")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with stage(nodes=2 + asked.kills) as here:
        run = _run(here, asked.kills, steps=1_000_000)
        for number in range(asked.kills):
            time.sleep(rng.expovariate(1 / asked.mean))
            run.until_steps(SETTLE)
            here.kill(run.nodes[1])
            until(
                lambda n=number: len(run.events(EventKind.RECOVERED)) > n,  # type: ignore[misc]
                "a recovery",
            )
        run.until_steps(SETTLE)
        _tell(run, asked.kills)
        here.cluster.run("scancel", "--batch", "--signal=USR2", run.job)
        until(lambda: run.events("training-stopped"), "the last checkpoint")
        last = int(run.events("training-stopped")[-1].details["step"])
        run.cancel()
        if asked.again:
            here.recover()
            _compare(run, _undisturbed(here, last))


def _run(here: Stage, spares: int, steps: int) -> Run:
    settings = here.spec(0, 1).settings
    batch = {"global_size": BATCH, "micro_size": 8}
    schedule = {"kind": "constant"}
    changed = {**settings, "batch": batch, "schedule": schedule, "steps": steps}
    return here.submit(here.spec(spares, 1).model_copy(update={"settings": changed}))


def _undisturbed(here: Stage, steps: int) -> RunFolder:
    """Make the same steps without a kill."""
    run = _run(here, 0, steps)
    until(lambda: run.events("training-finished"), "the undisturbed run", 1800)
    return run.folder


def _tell(run: Run, kills: int) -> None:
    book = ledger(eventlog.read_all(run.folder.events)[0], time.time())
    since = book.total - book.startup
    usual = statistics.median(e.details["usual"] for e in run.events("recovering"))
    print("| kills | minutes | a step s | recovery median s | slowest s | steps made |")
    print("|---" * 6 + "|", end="")
    downs = sorted(failure.down for failure in book.failures)
    print(
        f"\n| {kills} | {since / 60:.1f} | {usual:.2f} | {statistics.median(downs):.2f} |"
        f" {downs[-1]:.2f} | {book.step} |\n"
        f"steps made again: {book.lost_steps}; effective training time "
        f"{book.productive / since:.3f} of all time since the first step",
        flush=True,
    )


def _compare(run: Run, other: RunFolder) -> None:
    one, _ = newest_whole(run.folder.checkpoints)
    two, _ = newest_whole(other.checkpoints)
    if one is None or two is None or one.step != two.step:
        print("the two runs have no step in common")
        return
    # Parameters, optimizer and generators lie in these files; samples and the rest do not.
    same = [
        (
            {name: entry.sha256 for name, entry in found.manifest.files.items()},
            {key: entry.digest for key, entry in found.manifest.tensors.items()},
            found.manifest.samples,
            found.manifest.extras,
        )
        for found in (one, two)
    ]
    losses = [
        {step: found.entry.loss for step, found in read(path).items()}
        for path in (
            run.folder.journal / "steps.txt",
            other.journal / "steps.txt",
        )
    ]
    print(
        f"step {one.step}: SHA-256 of {len(one.manifest.files)} files, digests of "
        f"{len(one.manifest.tensors)} tensors, and samples "
        f"{'equal' if same[0] == same[1] else 'DIFFER'}, "
        f"losses {'equal' if losses[0] == losses[1] else 'DIFFER'}",
        flush=True,
    )


if __name__ == "__main__":
    main()
