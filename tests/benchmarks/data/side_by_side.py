"""Measuring several ways to do one thing side by side, in small rounds, in one run."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Work = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over all rounds: processor and wall seconds of a round, and the ratio.

    ``ratio`` is the median over rounds of the first way's processor time to this
    one's: above 1 is quicker than the first. ``wall_ratio`` the same for wall time.
    """

    processor: float
    wall: float
    ratio: float
    wall_ratio: float


def side_by_side(ways: Mapping[str, Work], rounds: int) -> dict[str, Measured]:
    """Run each way once a round, in random order; the number of the round is given.

    The first round warms up and is not counted.
    """
    shuffled = random.Random(1)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in shuffled.sample(list(ways), len(ways)):
            wall, processor = time.perf_counter(), time.process_time()
            ways[name](number)
            spent = time.process_time() - processor, time.perf_counter() - wall
            if number:
                times[name].append(spent)
    base = next(iter(times.values()))
    return {name: _measured(found, base) for name, found in times.items()}


def _measured(
    found: list[tuple[float, float]], base: list[tuple[float, float]]
) -> Measured:
    pairs = list(zip(base, found, strict=True))
    return Measured(
        processor=statistics.median(one for one, _ in found),
        wall=statistics.median(one for _, one in found),
        ratio=statistics.median(b[0] / max(f[0], 1e-9) for b, f in pairs),
        wall_ratio=statistics.median(b[1] / max(f[1], 1e-9) for b, f in pairs),
    )


def table(title: str, unit: str, amount: float, found: Mapping[str, Measured]) -> str:
    """Return a Markdown table: the rate in ``unit`` per second, and ratios."""
    lines = [
        f"### {title}",
        "",
        f"| way | {unit}/s | processor time, ratio | wall time, ratio |",
        "|---|---:|---:|---:|",
    ]
    for name, one in found.items():
        rate = amount / max(one.wall, 1e-9)
        shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2f}"
        lines.append(f"| {name} | {shown} | {one.ratio:.3f} | {one.wall_ratio:.3f} |")
    return "\n".join([*lines, ""])
