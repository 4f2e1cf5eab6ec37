"""Slurm's release numbers."""

from __future__ import annotations

import re
from typing import Final

from hpcplat.slurm.answers import UnreadableError, clip

_VERSION: Final = re.compile(r"slurm(?:-wlm)? (?P<year>\d{2})\.(?P<month>\d{2})\b")


def parse_version(stdout: str) -> tuple[int, int]:
    """Return the release from ``slurm-wlm 22.05.8``: (22, 5)."""
    match = _VERSION.match(stdout)
    if match is None:
        raise UnreadableError(f"{clip(stdout)} is not a version of Slurm.")
    return int(match["year"]), int(match["month"])
