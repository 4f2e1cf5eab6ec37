"""Curves drawn as a picture file: PNG, SVG or PDF."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from hpcplat.errors import InvalidError
from hpcplat.files import write_whole
from hpcplat.tracking.panels import Line, Mark, Panel

MOST_WORDS = 3  # more would hide the curve
FORMATS = (".png", ".svg", ".pdf")
MARK_STYLES = {
    "failure": {"color": "#c1121f", "linestyle": "-", "linewidth": 1.4},
    "restart": {"color": "#e09f3e", "linestyle": "--", "linewidth": 1.2},
}


def save(panels: Sequence[Panel], path: Path, *, title: str, x: str, log: bool) -> None:
    """Write the panels, one below the other; the file's ending is its format."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidError(
            f"{path.name} names no format that can be drawn.",
            f"End it in {', '.join(FORMATS)}.",
        )
    figure = Figure(figsize=(9, 0.7 + 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel, log)
    axes[-1].set_xlabel(x)
    failures = [mark for mark in panels[0].marks if mark.kind == "failure"]
    for mark in failures if len(failures) <= MOST_WORDS else ():
        _draw_words(axes[0], mark)
    figure.suptitle(title)
    drawn = dict(pair for axis in axes for pair in _labelled(axis))
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside lower center", ncols=3, fontsize=8
    )
    file = io.BytesIO()
    figure.savefig(file, format=path.suffix.lower()[1:], dpi=120)
    write_whole(path, file.getvalue())


def _draw(axis: Any, panel: Panel, log: bool) -> None:  # noqa: ANN401 - Matplotlib's Axes
    axis.set_ylabel(panel.name)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if log:
        axis.set_yscale("log")
    for line in panel.lines:
        _draw_line(axis, line)
    said: set[str] = set()
    for mark in panel.marks:
        _draw_mark(axis, mark, said)


def _draw_words(axis: Any, mark: Mark) -> None:  # noqa: ANN401
    if mark.x is not None:
        across = axis.get_xaxis_transform()
        style = {"fontsize": 7, "color": "#c1121f", "rotation": 90, "va": "top"}
        axis.text(mark.x, 0.98, f" {mark.words[:40]}", transform=across, **style)


def _labelled(axis: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    handles, labels = axis.get_legend_handles_labels()
    return list(zip(labels, handles, strict=True))


def _draw_line(axis: Any, line: Line) -> None:  # noqa: ANN401
    [drawn] = axis.plot(line.xs, line.ys, label=line.label, linewidth=1.3)
    color = drawn.get_color()
    if line.superseded:
        xs, ys = zip(*line.superseded, strict=True)
        label = f"{line.label}: before it was run again"
        axis.plot(xs, ys, ".", color=color, alpha=0.35, markersize=4, label=label)
    if line.not_finite:
        foot = [0.02] * len(line.not_finite)
        label = f"{line.label}: NaN or infinite"
        across = axis.get_xaxis_transform()
        axis.plot(
            line.not_finite, foot, "x", color=color, transform=across, label=label
        )


def _draw_mark(axis: Any, mark: Mark, said: set[str]) -> None:  # noqa: ANN401
    if mark.x is not None:
        label = None if mark.kind in said else mark.kind
        said.add(mark.kind)
        axis.axvline(mark.x, label=label, zorder=0, **MARK_STYLES[mark.kind])
