"""The step journal: what each step saw and gave, bit for bit, to prove a resume by.

One line a step, appended by rank 0. Steps that are run again after a resume are held
against their first run: on the same layout the bits must be equal, on another one the
numbers must be near. The first that is not stops the run.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hpcplat.checkpoints.proof import ResumeMismatchError

FILE_NAME: Final = "steps.txt"
MARK: Final = "."  # ends a whole line: a torn one has none
# Rounding differs between layouts, and an unstable stretch of a training multiplies what
# differs (a thousandfold in ten steps was seen): near numbers are asked of so many steps.
STEPS_THAT_STAY_NEAR: Final = 10


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which a step ran: equal ones must give equal bits if ``exact``.

    ``layout`` names the parallel layout; ``loss_tolerance`` is absolute and
    ``norm_tolerance`` relative, for comparison with steps of other conditions.
    ``draws``: the layout decides which random numbers a step draws (dropout); other
    layouts' losses then are no nearer than chance lets them.
    """

    layout: str
    world: int
    exact: bool
    precision: str = "fp32"
    loss_tolerance: float = 1e-5
    norm_tolerance: float = 1e-3
    draws: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A step: number (from 1: steps done after it), and what it saw and gave.

    ``grad_norm`` is NaN where there was no update.
    """

    step: int
    samples: str
    loss: float
    grad_norm: float
    learning_rate: float
    loss_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Expected:
    """An earlier run of a step, and its conditions."""

    entry: Entry
    conditions: Conditions


class Journal:
    """The journal of a run, open for appending.

    A disk that takes no more costs lines (``lost``), never a step.
    """

    def __init__(self, folder: Path, conditions: Conditions) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE_NAME
        self.conditions = conditions
        self.lost = 0
        self.compared = 0
        self._expected = read(self.path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o644)
        # A leading newline ends a line that a death tore.
        self._append("\nstart " + json.dumps(asdict(conditions)))

    def record(self, entry: Entry) -> None:
        """Append a step; ResumeMismatchError if an earlier run of it differs.

        What differs is not written: the next try is held against the first run too.
        """
        earlier = self._expected.pop(entry.step, None)
        if earlier is not None:
            near = self.compared < STEPS_THAT_STAY_NEAR
            compare(earlier, Expected(entry, self.conditions), near)
            self.compared += 1
        self._append(_line(entry))

    def forget_after(self, step: int) -> None:
        """Expect nothing of steps after this one: they will see other samples."""
        self._append(f"forget {step} {MARK}")
        _forget(self._expected, step)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _append(self, line: str) -> None:
        try:
            os.write(self._file, line.encode() + b"\n")
        except OSError:
            self.lost += 1


def compare(earlier: Expected, now: Expected, must_be_near: bool = True) -> None:
    """Raise ResumeMismatchError with the first quantity that differs.

    Under other conditions loss and norm must be near, or are not looked at.
    """
    must_be_near &= not (earlier.conditions.draws or now.conditions.draws)
    exact = earlier.conditions == now.conditions and now.conditions.exact
    for name, was, found, near in _quantities(earlier, now):
        is_good_enough = near is not None and (near or not must_be_near)
        if was == found or (not exact and is_good_enough):
            continue
        how = "bit for bit" if exact else "within the tolerance"
        raise ResumeMismatchError(
            f"Step {now.entry.step} was run again and its {name} is not the same {how}: "
            f"{_shown(found)}, first {_shown(was)}.",
            "The resume is not what was lost: look at what changed since, or start anew.",
        )


def _quantities(
    earlier: Expected, now: Expected
) -> Iterator[tuple[str, object, object, bool | None]]:
    """Yield (name, was, is, whether near; None for what must be equal anywhere)."""
    one, two = earlier.entry, now.entry
    loss = max(earlier.conditions.loss_tolerance, now.conditions.loss_tolerance)
    norm = max(earlier.conditions.norm_tolerance, now.conditions.norm_tolerance)
    yield "samples", one.samples, two.samples, None
    yield "learning rate", one.learning_rate, two.learning_rate, None
    yield "loss scale", one.loss_scale, two.loss_scale, None
    near = math.isclose(one.loss, two.loss, rel_tol=0, abs_tol=loss)
    yield "loss", _bits(one.loss), _bits(two.loss), near
    near = math.isclose(one.grad_norm, two.grad_norm, rel_tol=norm)
    yield "gradient norm", _bits(one.grad_norm), _bits(two.grad_norm), near


def _bits(value: float) -> str:
    return value.hex()  # NaN is "nan", equal to itself


def _shown(value: object) -> str:
    if isinstance(value, str) and value.startswith(("0x", "-0x")):
        return f"{float.fromhex(value)!r} ({value})"
    return str(value)


def read(path: Path) -> dict[int, Expected]:
    """Return the newest run of each step that stands in a journal, whole lines only."""
    found: dict[int, Expected] = {}
    conditions = Conditions("", 0, exact=False)
    if not path.exists():
        return found
    with path.open(errors="replace") as file:
        for line in file:
            words = line.split()
            if words[:1] == ["start"]:
                conditions = _conditions(line[6:]) or conditions
            elif words[:1] == ["forget"] and words[-1] == MARK:
                _forget(found, int(words[1]))
            elif (entry := _entry(words)) is not None:
                found[entry.step] = Expected(entry, conditions)
    return found


def _forget(entries: dict[int, Expected], step: int) -> None:
    for later in [known for known in entries if known > step]:
        del entries[later]


def _conditions(text: str) -> Conditions | None:
    try:
        return Conditions(**json.loads(text))
    except (ValueError, TypeError):
        return None


def _line(entry: Entry) -> str:
    numbers = (entry.loss, entry.grad_norm, entry.learning_rate, entry.loss_scale)
    return " ".join([str(entry.step), entry.samples, *map(_bits, numbers), MARK])


def _entry(words: list[str]) -> Entry | None:
    if len(words) != 7 or words[-1] != MARK:
        return None
    try:
        numbers = [float.fromhex(word) for word in words[2:6]]
        return Entry(int(words[0]), words[1], *numbers)
    except ValueError:
        return None
