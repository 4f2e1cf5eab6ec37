"""Identifiers: short, sorted by time, and the keys by which Slurm's jobs are known."""

from __future__ import annotations

import os
import re
import time
from typing import Final

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford: no i, l, o, u
_TIME_DIGITS: Final = 9  # milliseconds up to the year 3084
_RANDOM_DIGITS: Final = 7  # 35 bits
KEY_PATTERN: Final = re.compile(r"hpc-([0-9a-hjkmnp-tv-z]{16})-(\d{1,6})-(\d{1,6})")


def new_job_id(milliseconds: int | None = None) -> str:
    """Return 16 characters that sort by the time of their making."""
    now = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    chance = int.from_bytes(os.urandom(5)) & ((1 << 5 * _RANDOM_DIGITS) - 1)
    return _spell(now, _TIME_DIGITS) + _spell(chance, _RANDOM_DIGITS)


def submission_key(job_id: str, number: int, part: int) -> str:
    """Return the key that a submission carries in its Slurm comment and name."""
    return f"hpc-{job_id}-{number}-{part}"


def find_key(*texts: str) -> str | None:
    """Return the first submission key that stands in one of the texts."""
    for text in texts:
        found = KEY_PATTERN.search(text)
        if found:
            return found.group()
    return None


def _spell(value: int, length: int) -> str:
    digits = [_DIGITS[(value >> 5 * place) & 31] for place in range(length)]
    return "".join(reversed(digits))
