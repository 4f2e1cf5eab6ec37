"""Slurm's generic resources: ``gpu:h100:4(S:0-1)`` in all its spellings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hpcplat.errors import InvalidError

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}

# `gres:gpu:h100:4` (squeue 22.05), `gres/gpu:h100:4` (newer), `gres/gpu:h100=4`.
_ITEM: Final = re.compile(
    r"(?:gres[:/])?(?P<name>[A-Za-z_][\w.\-]*)"
    r"(?P<middle>(?::(?!\d+[KMGTP]?(?:\(|$))(?:[\w.\-]+|\(null\)))*)"
    r"(?:[:=](?P<count>\d{1,18})(?P<unit>[KMGTP]?))?"
    r"(?:\([^()]*\))?",
    re.ASCII,
)
_COMMA: Final = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True, slots=True)
class Gres:
    """A generic resource: its name, its type (empty if it has none), how many."""

    name: str
    type: str
    count: int


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Return the resources of a comma list.

    What stands in parentheses (sockets, indexes) is left out, as is the word
    no_consume; a resource without a count counts one, as for sbatch. ``(null)``,
    ``N/A`` and the empty text give none. Raises InvalidError for anything else.
    """
    if text in ("", "(null)", "N/A", "n/a"):
        return ()
    return tuple(_item(part, text) for part in _COMMA.split(text))


def _item(part: str, text: str) -> Gres:
    match = _ITEM.fullmatch(part)
    types = [] if match is None else match["middle"].split(":")[1:]
    types = [word for word in types if word not in ("no_consume", "(null)")]
    if match is None or len(types) > 1:
        raise InvalidError(
            f"{text[:80]!r} is not a generic resource.",
            "Write name:type:count, such as gpu:h100:4.",
        )
    count = int(match["count"] or 1) * _UNITS[match["unit"] or ""]
    return Gres(match["name"], types[0] if types else "", count)


def gpus_by_type(text: str) -> Mapping[str, int]:
    """Return how many GPUs of each type; those without a type under the empty text."""
    counts: Counter[str] = Counter()
    for gres in parse_gres(text):
        if gres.name == "gpu":
            counts[gres.type] += gres.count
    return dict(counts)


def gpu_count(text: str) -> int:
    """Return how many GPUs, whatever their type."""
    return sum(gpus_by_type(text).values())
