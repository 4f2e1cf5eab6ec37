"""Where a batch job's output goes: sbatch's file name patterns, written out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcplat.sbatchline.precedence import Request

PLAIN: Final = "slurm-%j.out"
OF_ARRAY: Final = "slurm-%A_%a.out"
_PATTERN: Final = re.compile(r"%(\d*)([%A-Za-z])")


@dataclass(frozen=True, slots=True)
class Place:
    """What the patterns stand for in one job or array task."""

    job_id: int
    name: str
    user: str
    task: int | None = None
    node: str = ""  # the first one, where the batch script runs


def output_file(asked: Request, folder: Path, place: Place) -> Path:
    """Return the file of a batch script's output (sbatch(1), FILENAME PATTERN).

    ``folder`` is where sbatch was called. For an array task without a number its
    file can't be told: the caller asks for one.
    """
    default = PLAIN if place.task is None else OF_ARRAY
    pattern = asked.value("output") or default
    return folder / (asked.value("chdir") or "") / expanded(pattern, place)


def expanded(pattern: str, place: Place) -> str:
    r"""Return a file name with its patterns written out; a ``\`` takes them literally.

    ``%j`` is the job's own number: of an array task that is known to Slurm alone, so
    it stays as the array's.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    values = {
        "j": str(place.job_id),
        "A": str(place.job_id),
        "a": str(place.task if place.task is not None else 4294967294),
        "J": str(place.job_id),
        "x": place.name,
        "u": place.user,
        "N": place.node,
        "n": "0",
        "t": "0",
        "s": "batch",
        "b": str((place.task or 0) % 10),
        "%": "%",
    }

    def value(match: re.Match[str]) -> str:
        width, letter = match.groups()
        text = values.get(letter)
        if text is None:
            return match[0]
        return text.zfill(min(int(width), 10)) if width and text.isdecimal() else text

    return _PATTERN.sub(value, pattern)
