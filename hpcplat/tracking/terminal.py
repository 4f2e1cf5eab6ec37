"""Curves drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import plotext

from hpcplat.quantities import counted
from hpcplat.tracking.panels import Line, Mark, Panel

PANEL_ROWS = 14
COLORS = ("blue+", "orange", "green+", "magenta+", "cyan+", "gray+")
MARK_COLORS = {"failure": "red+", "restart": "yellow"}


def draw(panels: Sequence[Panel], width: int, *, colored: bool, x: str) -> str:
    """Return the panels as text, ``width`` columns wide; ``x`` names the axis."""
    parts = []
    for panel in panels:
        parts.append(_picture(panel, width, colored, x))
        parts += _words(panel)
    parts += _mark_words(panels[0].marks) if panels else []
    return "\n".join(parts)


def _picture(panel: Panel, width: int, colored: bool, x: str) -> str:
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, PANEL_ROWS)
    plotext.title(panel.name)
    plotext.xlabel(x)
    for mark in panel.marks:
        if mark.x is not None:
            plotext.vline(mark.x, MARK_COLORS[mark.kind])
    for line, color in zip(panel.lines, _cycle(), strict=False):
        xs, ys = _thinned(line, 4 * width)
        label = line.label if len(panel.lines) > 1 else None
        plotext.plot(xs, ys, label=label, color=color, marker="braille")
    xs = [x for line in panel.lines for x in line.xs]
    if xs:
        ticks = round_ticks(min(xs), max(xs), width // 12)
        plotext.xticks(ticks, [f"{tick:g}" for tick in ticks])
    text: str = plotext.build()
    return (text if colored else plotext.uncolorize(text)).rstrip()


def _cycle() -> Iterator[str]:
    while True:
        yield from COLORS


def _thinned(line: Line, most: int) -> tuple[list[float], list[float]]:
    """Keep the lowest and the highest point of each stretch: spikes stay visible."""
    count = len(line.xs)
    stretch = max(1, -(-count // (most // 2)))
    keep: set[int] = set()
    for start in range(0, count, stretch):
        places = range(start, min(start + stretch, count))
        keep |= {min(places, key=line.ys.__getitem__)}
        keep |= {max(places, key=line.ys.__getitem__)}
    chosen = sorted(keep)
    return [line.xs[i] for i in chosen], [line.ys[i] for i in chosen]


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers (1, 2 or 5 times a power of ten) from ``low`` to ``high``."""
    if high <= low:
        return [low]
    rough = (high - low) / max(most, 1)
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [number * step for number in range(first, last + 1)]


def _words(panel: Panel) -> Iterator[str]:
    for line in panel.lines:
        yield "  " + ", ".join(_summary(panel.name, line))


def _summary(name: str, line: Line) -> Iterator[str]:
    yield f"{line.label} {name}"
    if line.ys:
        yield f"last {line.ys[-1]:.6g} at {line.xs[-1]:.6g}"
        yield f"least {min(line.ys):.6g}, most {max(line.ys):.6g}"
    if line.not_finite:
        first = line.not_finite[0]
        yield f"NaN or infinite {counted(len(line.not_finite), 'time')}, first at {first:.6g}"
    if line.superseded:
        yield f"{counted(len(line.superseded), 'point')} run again"


def _mark_words(marks: Sequence[Mark]) -> Iterator[str]:
    for mark in marks:
        where = "before the first step" if mark.x is None else f"at {mark.x:.6g}"
        yield f"  {mark.kind} {where}: {mark.words}"
