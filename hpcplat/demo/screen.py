"""What the demo prints: numbered acts, and two lines that stay in place on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hpcplat.demo.watch import Step

INDENT: Final = " " * 6
BAR: Final = 20
EVERY: Final = 10  # steps between two lines where output goes to a file
# How a node's ranks are drawn.
TRAINS, STANDS_BY, DEAD = "●", "○", "✗"


class Screen:
    """Prints acts; between ``start`` and ``stop`` two lines show the training."""

    def __init__(self, acts: int, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._acts, self._act = acts, 0
        self._live: Live | None = None
        self._printed = 0

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self._console.width

    def act(self, title: str) -> None:
        """Begin the next act."""
        self._act += 1
        self.say(f"\n[{self._act}/{self._acts}] {title}")

    def say(self, line: str) -> None:
        """Print one line."""
        self._console.print(line, markup=False)

    def say_all(self, lines: Iterable[str]) -> None:
        """Print lines, indented; on a terminal no wider than it is."""
        for line in lines:
            for part in self._fitted(f"{INDENT}{line}"):
                self.say(part)

    def _fitted(self, line: str) -> list[str]:
        if not self._console.is_terminal or len(line) <= self.width:
            return [line]
        indent = line[: -len(line.lstrip())]
        return wrap(
            line.lstrip(),
            self.width,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,  # a path must stay one
            break_on_hyphens=False,
        )

    def start(self) -> None:
        """Keep two lines at the bottom from now on, where there is a terminal."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()

    def stop(self) -> None:
        """Let the two lines stand."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(
        self, step: Step, steps: int, left: float | None, nodes: Mapping[str, str]
    ) -> None:
        """Show how far the training is, and which nodes train."""
        room = self.width - len(INDENT) if self._live is not None else None
        progress = progress_line(step, steps, left, room)
        picture = nodes_line(nodes)
        if self._live is not None:
            text = Text(f"{INDENT}{progress}\n{INDENT}{picture}", no_wrap=True)
            self._live.update(text, refresh=True)
        elif step.number // EVERY > self._printed:
            self._printed = step.number // EVERY
            self.say_all([f"{progress}   {picture}"])


def progress_line(
    step: Step, steps: int, left: float | None, room: int | None = None
) -> str:
    """Return a bar and the newest step's numbers; the bar gives way to little room."""
    minutes, seconds = divmod(round(left or 0), 60)
    rest = "" if left is None else f"   {minutes}:{seconds:02} left"
    numbers = (
        f"step {step.number}/{steps}   loss {step.loss:.3f}   "
        f"{step.speed:,.0f} tokens/s{rest}"
    )
    size = BAR if room is None else max(0, min(BAR, room - len(numbers) - 1))
    done = round(size * step.number / steps)
    return f"{'━' * done}{'─' * (size - done)} {numbers}".lstrip()


def nodes_line(nodes: Mapping[str, str]) -> str:
    """Return each node with its mark."""
    return "   ".join(f"{name} {mark}" for name, mark in nodes.items())
