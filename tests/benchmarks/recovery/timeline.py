"""Draws one failure from a run folder: `… timeline.py RUN_FOLDER NUMBER OUT.svg`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import matplotlib as mpl

from hpcplat import eventlog
from hpcplat.ledger import Failure, ledger
from hpcplat.runfolder import RunFolder

mpl.use("svg")
from matplotlib import pyplot as plt

PHASES = (
    ("detect", "last step, then the loss is seen", "#c44e52"),
    ("reschedule", "old ranks ended, places given anew", "#dd8452"),
    ("start", "ranks forked, groups made, state loaded", "#4c72b0"),
    ("first_step", "the first new step, on all ranks", "#55a868"),
)


def main(folder: str, number: str, out: str) -> None:
    events, _ = eventlog.read_all(RunFolder(Path(folder)).events)
    draw(ledger(events, time.time()).failures[int(number)], Path(out))


def draw(failure: Failure, out: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 2.2))
    left = 0.0
    for name, words, colour in PHASES:
        width = getattr(failure, name)
        label = f"{words}: {width:.2f} s"
        axes.barh([0], [width], left=left, color=colour, label=label)
        left += width
    axes.set_yticks([])
    axes.set_xlabel("seconds since the last step before the loss")
    axes.set_title(
        f"A node was killed: {left:.2f} s to the next step, "
        f"{failure.lost_steps} steps made twice",
        fontsize=10,
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=2, fontsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(out, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:4])
