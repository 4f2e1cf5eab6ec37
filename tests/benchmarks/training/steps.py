"""Our step beside the shortest hand-written Megatron loop, in the same processes.

On two cores, TP2 and PP2 have one for each rank; TP2 x PP2 has not.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.training.layouts import laid_out
from tests.launchers.megatron.conftest import Trainer, merged

SCRIPT = str(Path(__file__).with_name("step_ranks.py"))
ROUNDS = 16  # of ten steps of each loop
SHORT = {
    "steps": 10_000,
    "data": {"sequence_length": 64},
    "batch": {"global_size": 8, "micro_size": 2},
    "model": {
        "num_layers": 4,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "max_sequence_length": 64,
    },
}
# What a step costs beside the passes does not grow with them.
LONG = merged(SHORT, {"batch": {"global_size": 32}})


def run(train: Trainer, folder: Path) -> None:
    """Print what a step takes, for one process, two and four; steps short and long."""
    folder.mkdir()
    print("\nLogging, journal and a checkpoint every 10 steps are on in ours:\n")
    heads = ("step", "ours, ms", "plain, ms", "ratio (quartiles)", "of CPU time")
    print(f"| {' | '.join(heads)} | ratio without saves | limit | a save adds, ms |")
    print("|---|---|---|---|---|---|---|---|")
    waits = []
    for name, model, world, layout in (
        ("one process", SHORT, 1, {}),
        ("one process, 4 x the batch", LONG, 1, {}),
        ("TP2", SHORT, 2, laid_out(tensor=2)),
        ("TP2, 4 x the batch", LONG, 2, laid_out(tensor=2)),
        ("PP2", SHORT, 2, laid_out(pipeline=2)),
        ("PP2, 4 x the batch", LONG, 2, laid_out(pipeline=2)),
        ("TP2 x PP2", SHORT, 4, laid_out(tensor=2, pipeline=2)),
    ):
        changes = merged({"settings": model, "checkpoint": {"every": 10}}, layout)
        rounds = ROUNDS if model is SHORT else 3 * ROUNDS // 4
        found = train(folder / name, world, changes, (SCRIPT, str(rounds)))
        if not found.ok:
            print(found.log()[-3000:])
            continue
        told = json.loads((folder / name / "times.json").read_text())
        ours, plain = told["ours"] * 1e3, told["plain"] * 1e3
        print(
            f"| {name} | {ours:.0f} | {plain:.0f} | {told['ratio']:.3f} "
            f"({told['low']:.3f} to {told['high']:.3f}) | {told['cpu']:.3f} | "
            f"{told['unsaved']:.3f} | 1.02 | {told['save'] * 1e3:.0f} |",
            flush=True,
        )
        waits.append(f"{name} {told['data']:.2%}")
    print(f"\nWaiting for data: {', '.join(waits)} of a step (limit 1 %).")
