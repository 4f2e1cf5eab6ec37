"""What an attempt came to: its exit code and the reason, in words; pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from launchers.messages import Ended

OUT_OF_MEMORY: Final = "was killed by the kernel: the job's memory was used up."


@dataclass(frozen=True, slots=True)
class Verdict:
    """The exit code, the reason in one line, and the last lines that the rank wrote."""

    code: int
    reason: str = ""
    rank: int | None = None
    node: str = ""
    tail: tuple[str, ...] = field(default=())


def first_failure(ends: Iterable[Ended]) -> Ended | None:
    """Return the rank that failed first by itself, by its node's clock."""
    failed = [end for end in ends if end.code and not end.stopped]
    return min(failed, key=lambda end: end.time, default=None)


def failure(end: Ended, node: str) -> Verdict:
    """Return the verdict on a job whose first failing rank is this one."""
    where = f"Rank {end.rank} on {node}"
    if end.problem:
        reason = f"{where} could not start: {end.problem}"
    else:
        how = OUT_OF_MEMORY if end.out_of_memory else how_it_ended(end.code)
        reason = f"{where} {how}" + _last_words(end.tail)
    return Verdict(end.code, reason, end.rank, node, end.tail)


def how_it_ended(code: int) -> str:
    """Say an exit code in words; above 128 it may tell of a signal (code - 128)."""
    names = {number.value: number.name for number in signal.Signals}
    name = names.get(code - 128)
    if name is None:
        return f"ended with exit code {code}."
    hint = " (the kernel does so when memory is short)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}."


def _last_words(tail: tuple[str, ...]) -> str:
    return f" Its last line: {tail[-1].strip()[:500]}" if tail else ""


def missing_outputs(patterns: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Return the declared outputs that are not there, as they were declared."""
    return tuple(pattern for pattern in patterns if not _is_there(pattern, folder))


def _is_there(pattern: str, folder: Path) -> bool:
    if (folder / pattern).exists():
        return True
    path = Path(pattern)
    base, relative = folder, pattern
    if path.is_absolute():
        base, relative = Path(path.anchor), str(path.relative_to(path.anchor))
    return next(base.glob(relative), None) is not None
