"""What the demo prints: numbered acts, and two lines that stay in place on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hpcplat.demo.watch import Step

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

    def act(self, title: str) -> None:
        """Begin the next act."""
        self._act += 1
        self.say(f"\n[{self._act}/{self._acts}] {title}")

    def say(self, line: str) -> None:
        """Print one line."""
        self._console.print(line, markup=False)

    def say_all(self, lines: Iterable[str]) -> None:
        """Print lines, indented."""
        for line in lines:
            self.say(f"      {line}")

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
        progress, picture = progress_line(step, steps, left), nodes_line(nodes)
        if self._live is not None:
            text = Text(f"      {progress}\n      {picture}", no_wrap=True)
            self._live.update(text, refresh=True)
        elif step.number // EVERY > self._printed:
            self._printed = step.number // EVERY
            self.say_all([f"{progress}   {picture}"])


def progress_line(step: Step, steps: int, left: float | None) -> str:
    """Return a bar and the newest step's numbers."""
    done = round(BAR * step.number / steps)
    bar = "━" * done + "─" * (BAR - done)
    minutes, seconds = divmod(round(left or 0), 60)
    rest = "" if left is None else f"   {minutes}:{seconds:02} left"
    return (
        f"{bar} step {step.number}/{steps}   loss {step.loss:.3f}   "
        f"{step.speed:,.0f} tokens/s{rest}"
    )


def nodes_line(nodes: Mapping[str, str]) -> str:
    """Return each node with its mark."""
    return "   ".join(f"{name} {mark}" for name, mark in nodes.items())
