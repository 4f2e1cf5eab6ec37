"""Slurm's trackable resources: ``cpu=4,mem=800M,gres/gpu:h100=4``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from math import ceil
from typing import Final

from hpcplat.errors import InvalidError
from hpcplat.quantities import parse_memory

_ITEM: Final = re.compile(
    r"(?P<name>[A-Za-z_][\w.:/\-]*)=(?P<value>\d{1,18}(?:\.\d{1,9})?[KMGTP]?)", re.ASCII
)
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_MEMORY: Final = frozenset({"mem", "vmem"})


def parse_tres(text: str) -> Mapping[str, int]:
    """Return the count of each resource by its name; memory in MiB.

    ``(null)``, ``N/A`` and the empty text give none. Raises InvalidError for
    anything else that is not ``name=count`` with commas between.
    """
    if text in ("", "(null)", "N/A", "n/a"):
        return {}
    counts: dict[str, int] = {}
    for part in text.split(","):
        match = _ITEM.fullmatch(part)
        if match is None or match["name"] in counts:
            raise InvalidError(
                f"{text[:80]!r} is not a list of trackable resources.",
                "Write name=count, such as cpu=4,mem=800M,gres/gpu=4.",
            )
        counts[match["name"]] = _count(match["name"], match["value"])
    return counts


def _count(name: str, value: str) -> int:
    if name in _MEMORY:
        return parse_memory(value)
    number, unit = (value, "") if value[-1].isdigit() else (value[:-1], value[-1])
    # Slurm shortens large counts with the letters of bytes.
    return ceil(Decimal(number) * _UNITS[unit])


def gpus_by_type(tres: Mapping[str, int]) -> Mapping[str, int]:
    """Return how many GPUs of each type; those without a type under the empty text.

    ``gres/gpu`` counts all GPUs, typed ones too, where the site tracks both.
    """
    prefix = "gres/gpu:"
    typed = {
        name.removeprefix(prefix): count
        for name, count in tres.items()
        if name.startswith(prefix) and count
    }
    untyped = tres.get("gres/gpu", 0) - sum(typed.values())
    return typed | ({"": untyped} if untyped > 0 else {})


def gpu_count(tres: Mapping[str, int]) -> int:
    """Return how many GPUs, whatever their type."""
    return sum(gpus_by_type(tres).values())
