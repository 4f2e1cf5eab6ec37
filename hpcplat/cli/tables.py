"""Tables for people on a terminal, tab-separated lines for programs."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from hpcplat import foreign

Row = Mapping[str, Any]

GAP: Final = "  "
NARROWEST: Final = 8  # what a column that may shrink is cut down to

# Colour of a state, as ANSI codes: green goes on, yellow waits, red failed.
COLOURS: Final = {
    "RUNNING": "32",
    "COMPLETED": "32",
    "PENDING": "33",
    "QUEUED": "33",
    "SUBMITTING": "33",
    "SUSPENDED": "33",
    "FAILED": "31",
    "CANCELLED": "2",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, and how a row's cell is made.

    ``rank``: the higher, the sooner it is dropped on a narrow terminal; 0 stays.
    ``shrinks``: its cells are cut, with an ellipsis, before any column is dropped.
    """

    title: str
    cell: Callable[[Row], str]
    rank: int = 0
    right: bool = False
    shrinks: bool = False
    coloured: bool = False


def is_terminal(stream: TextIO | None = None) -> bool:
    """Tell whether a person looks at the output."""
    return (stream or sys.stdout).isatty()


def wants_colour(stream: TextIO | None = None) -> bool:
    """Tell whether colours may be used (NO_COLOR, dumb terminals: none)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return is_terminal(stream) and not plain


def width_of_terminal() -> int:
    """Return how many columns the terminal has."""
    return shutil.get_terminal_size((80, 24)).columns


def shown(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return rows for the standard output: a table for people, else plain lines."""
    if is_terminal():
        return table(rows, columns, width_of_terminal(), wants_colour())
    return plain(rows, columns)


def plain(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return one line a row, cells between tabs, no title: for cut, awk and sort."""
    return "\n".join(
        "\t".join(printable(column.cell(row)) for column in columns) for row in rows
    )


def table(
    rows: Sequence[Row], columns: Sequence[Column], width: int, colour: bool
) -> str:
    """Return a table of at most ``width`` columns of text."""
    cells = [[printable(column.cell(row)) for column in columns] for row in rows]
    sizes = [
        max([cell_width(column.title), *(cell_width(line[i]) for line in cells)])
        for i, column in enumerate(columns)
    ]
    kept = fitted(columns, sizes, width)
    head = _line([column.title for column in columns], columns, kept, None)
    colours = [_colour(line, columns) if colour else None for line in cells]
    body = [
        _line(line, columns, kept, code)
        for line, code in zip(cells, colours, strict=True)
    ]
    return "\n".join([f"\x1b[1m{head}\x1b[0m" if colour else head, *body])


def fitted(
    columns: Sequence[Column], sizes: Sequence[int], width: int
) -> dict[int, int]:
    """Return which columns (by place) are shown, and how wide."""
    kept = dict(enumerate(sizes))
    while _total(kept) > width:
        over = _total(kept) - width
        roomy = [i for i in kept if columns[i].shrinks and kept[i] > NARROWEST]
        if roomy:
            widest = max(roomy, key=lambda i: kept[i])
            kept[widest] -= min(over, kept[widest] - NARROWEST)
            continue
        droppable = [i for i in kept if columns[i].rank]
        if not droppable:
            break
        del kept[max(droppable, key=lambda i: (columns[i].rank, i))]
        kept = {i: sizes[i] for i in kept}
    return kept


def printable(text: str) -> str:
    """Return text that can't steer a terminal: control characters become ``?``."""
    return foreign.printable(text, "?")


def cell_width(text: str) -> int:
    """Return how many columns of a terminal the text fills."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def cut(text: str, width: int) -> str:
    """Return text of at most ``width`` columns, with an ellipsis where it was cut."""
    if cell_width(text) <= width:
        return text
    while text and cell_width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _total(kept: Mapping[int, int]) -> int:
    return sum(kept.values()) + len(GAP) * (len(kept) - 1)


def _line(
    cells: Sequence[str],
    columns: Sequence[Column],
    kept: Mapping[int, int],
    code: str | None,
) -> str:
    parts = []
    for place, size in kept.items():
        text = cut(cells[place], size)
        space = " " * (size - cell_width(text))
        if code and columns[place].coloured:
            text = f"\x1b[{code}m{text}\x1b[0m"
        parts.append(space + text if columns[place].right else text + space)
    return GAP.join(parts).rstrip()


def _colour(cells: Sequence[str], columns: Sequence[Column]) -> str | None:
    found = (
        COLOURS.get(c) for c, col in zip(cells, columns, strict=True) if col.coloured
    )
    return next(filter(None, found), None)
