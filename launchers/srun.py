"""srun with the agents that it starts: begun, watched, and ended if it stays."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from launchers import children
from launchers.loop import Loop
from launchers.verdict import Verdict


class Srun:
    """The job step of the agents; ``on_end`` is called once, when srun has left."""

    def __init__(
        self, loop: Loop, argv: Sequence[str], on_end: Callable[[], None]
    ) -> None:
        self._loop, self._argv, self._on_end = loop, argv, on_end
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it."""
        self._loop.on_signal(signal.SIGCHLD, self._child_ended)
        self._process = children.start_below(self._argv)

    @property
    def is_over(self) -> bool:
        """Whether it left, or never was."""
        return self._process is None or self._process.returncode is not None

    def end_in(self, patience: float) -> None:
        """End an srun that stays although all of its agents should have left."""
        self._loop.later(patience, partial(self._signal, signal.SIGTERM))
        self._loop.later(2 * patience, partial(self._signal, signal.SIGKILL))

    def broke(self, log: Path) -> Verdict:
        """Say how it left before the ranks were done; ``log`` is where it wrote."""
        status = self._process.returncode if self._process else 1
        code = 128 - status if status < 0 else status or 1
        lines = children.tail(log)
        words = f" Its last line: {lines[-1]}" if lines else ""
        return Verdict(code, f"srun ended before the ranks did.{words}", tail=lines)

    def _child_ended(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._on_end()

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self._process.poll() is None:
            children.signal_group(self._process, number)
