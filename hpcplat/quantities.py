"""Amounts as Slurm spells them (``1-02:03:04``, ``64G``), and as people read them."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Final

from hpcplat.errors import InvalidError

# Slurm counts minutes in 32 bits; its two highest values mean "none" and "unset".
LONGEST: Final = timedelta(minutes=2**32 - 3)

NO_LIMIT: Final = frozenset({"UNLIMITED", "INFINITE"})
NO_VALUE: Final = NO_LIMIT | {
    "",
    "INVALID",
    "N/A",
    "NONE",
    "NOT_SET",
    "PARTITION_LIMIT",
    "UNKNOWN",
}

_DURATION: Final = re.compile(
    r"(?P<days>[0-9]{1,10})-(?P<h>[0-9]{1,10})(?::(?P<m>[0-9]{1,10})(?::(?P<s>[0-9]{1,10}))?)?"
    r"|(?P<h2>[0-9]{1,10}):(?P<m2>[0-9]{1,10}):(?P<s2>[0-9]{1,10})"
    r"|(?P<m3>[0-9]{1,10})(?::(?P<s3>[0-9]{1,10}))?"
)
_MEMORY: Final = re.compile(
    r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,9})?)(?P<unit>[KMGTP]?)"
)
_MIB: Final = {
    "K": Decimal(1) / 1024,
    "": Decimal(1),
    "M": Decimal(1),
    "G": Decimal(1024),
    "T": Decimal(1024**2),
    "P": Decimal(1024**3),
}


def parse_duration(text: str) -> timedelta:
    """Return a finite duration from any of Slurm's spellings.

    ``30`` is minutes; ``30:15`` minutes:seconds; ``2:30:15`` hours:minutes:seconds;
    ``1-2``, ``1-2:30`` and ``1-2:30:15`` begin with days (sbatch(1), ``--time``).
    Raises InvalidError for anything else, words such as UNLIMITED included.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidError(
            f"{text!r} is not a duration.",
            "Write minutes (90), hours:minutes:seconds (1:30:00)"
            " or days-hours:minutes:seconds (1-12:00:00).",
        )
    part = {name: int(value or 0) for name, value in match.groupdict().items()}
    duration = timedelta(
        days=part["days"],
        hours=part["h"] + part["h2"],
        minutes=part["m"] + part["m2"] + part["m3"],
        seconds=part["s"] + part["s2"] + part["s3"],
    )
    return _within_reach(duration, text)


def parse_limit(text: str) -> timedelta | None:
    """Return a duration, or None for a word that says there is none.

    The words are Slurm's: UNLIMITED, INFINITE, INVALID, NOT_SET, N/A, NONE,
    Partition_Limit, Unknown and the empty text, in any case.
    """
    if text.strip().upper() in NO_VALUE:
        return None
    return parse_duration(text)


def format_duration(duration: timedelta) -> str:
    """Return ``days-HH:MM:SS``, without the days where there are none.

    Fractions of a second are rounded up, so that a limit never shrinks. Raises
    InvalidError for a negative duration and for one that Slurm can't count.
    """
    if duration < timedelta(0):
        raise InvalidError(f"A duration of {duration} is negative.", "Give 0 or more.")
    seconds = -(-_within_reach(duration, str(duration)) // timedelta(seconds=1))
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02}:{minute:02}:{second:02}"
    return f"{days}-{clock}" if days else clock


def _within_reach(duration: timedelta, text: str) -> timedelta:
    if duration > LONGEST:
        raise InvalidError(
            f"{text} is longer than Slurm can count ({LONGEST.days} days).",
            f"Give at most {LONGEST.days} days.",
        )
    return duration


def parse_memory(text: str) -> int:
    """Return MiB, rounded up, from Slurm's spelling: ``4000``, ``64G``, ``1.50T``.

    A bare number is MiB; K, M, G, T and P are powers of 1024, in either case
    (sbatch(1), ``--mem``). Raises InvalidError for anything else.
    """
    match = _MEMORY.fullmatch(text.strip().upper())
    if match is None:
        raise InvalidError(
            f"{text!r} is not an amount of memory.",
            "Write a number and one of K, M, G, T or P (64G is 64 GiB).",
        )
    amount = Decimal(match["number"]) * _MIB[match["unit"]]
    return int(amount.to_integral_value(rounding=ROUND_CEILING))


def format_memory(mib: int) -> str:
    """Return MiB as Slurm reads it, in the largest unit that keeps it whole."""
    if mib < 0:
        raise InvalidError(f"{mib} MiB of memory is negative.", "Give 0 or more.")
    amount, units = mib, ["M", "G", "T", "P"]
    while amount and amount % 1024 == 0 and len(units) > 1:
        amount //= 1024
        units.pop(0)
    return f"{amount}{units[0]}"


def counted(number: int, noun: str) -> str:
    """Return ``1 rank``, ``2 ranks``: a number and its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def spoken_size(count: int) -> str:
    """Return bytes for people, in the unit that leaves something to read: ``0.2 MB``."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size / 10:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
