"""Slurm's hostlists: ``n[01-03,7],gpu-a[1-2]-ib0`` to names and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final

from hpcplat.errors import InvalidError

# Slurm's own bound for one bracket (MAX_RANGE), here for a whole list.
MOST_NAMES: Final = 65536

_PIECE: Final = re.compile(r"\[(?P<ranges>[^\[\]]*)\]|(?P<plain>[^\[\],]+)")
_RANGE: Final = re.compile(r"(?P<low>[0-9]{1,18})(?:-(?P<high>[0-9]{1,18}))?")
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]+")


def expand(hostlist: str, most: int = MOST_NAMES) -> tuple[str, ...]:
    """Return the names in order, leading zeros and doubles kept.

    A name may hold several brackets; the last one counts fastest. Raises
    InvalidError for what is no hostlist, and for more than ``most`` names, before
    any of them is made.
    """
    found: list[str] = []
    for term in _terms(hostlist):
        found.extend(_expand_term(term, most - len(found), hostlist))
    return tuple(found)


def _terms(hostlist: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth = start = 0
    for place, letter in enumerate(hostlist):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            raise _not_a_hostlist(hostlist)
        if letter == "," and depth == 0:
            yield hostlist[start:place]
            start = place + 1
    if depth:
        raise _not_a_hostlist(hostlist)
    if hostlist:
        yield hostlist[start:]


def _expand_term(term: str, room: int, hostlist: str) -> Iterator[str]:
    pieces, end = [], 0
    for match in _PIECE.finditer(term):
        if match.start() != end:
            raise _not_a_hostlist(hostlist)
        end = match.end()
        pieces.append(_choices(match, hostlist))
        room_needed = 1
        for choices in pieces:
            room_needed *= sum(high - low + 1 for low, high, _, _ in choices)
        if room_needed > room:
            raise InvalidError(
                f"{hostlist[:60]!r} names more than {MOST_NAMES} nodes.",
                "Give a shorter list.",
            )
    if not pieces or end != len(term):
        raise _not_a_hostlist(hostlist)
    return map("".join, product(*map(_spelled, pieces)))


# One choice of a piece: lowest and highest number, digits to fill up, plain text.
_Choice = tuple[int, int, int, str]


def _choices(match: re.Match[str], hostlist: str) -> list[_Choice]:
    if match["plain"] is not None:
        if not _NAME.fullmatch(match["plain"]):
            raise _not_a_hostlist(hostlist)
        return [(0, 0, 0, match["plain"])]
    return [_range(text, hostlist) for text in match["ranges"].split(",")]


def _range(text: str, hostlist: str) -> _Choice:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise _not_a_hostlist(hostlist)
    low, high = int(match["low"]), int(match["high"] or match["low"])
    if high < low:
        raise _not_a_hostlist(hostlist)
    return low, high, len(match["low"]), ""


def _spelled(choices: Sequence[_Choice]) -> list[str]:
    return [
        plain or str(number).zfill(digits)
        for low, high, digits, plain in choices
        for number in range(low, high + 1)
    ]


def _not_a_hostlist(text: str) -> InvalidError:
    return InvalidError(
        f"{text[:60]!r} is not a hostlist.", "Write node names such as n[01-03,7],gpu1."
    )


def compress(names: Iterable[str]) -> str:
    """Return a hostlist that expands to these very names in this very order.

    Neighbours that differ in their last number share a bracket. Raises InvalidError
    for a name that can't be a node's.
    """
    groups: list[tuple[str, list[str]]] = []
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidError(
                f"{name[:60]!r} is not a node name.",
                "Use letters, digits, '-', '_' and '.'.",
            )
        stem = name.rstrip("0123456789")
        if groups and groups[-1][0] == stem and stem != name:
            groups[-1][1].append(name[len(stem) :])
        else:
            groups.append((stem, [name[len(stem) :]]))
    return ",".join(_bracketed(stem, numbers) for stem, numbers in groups)


def _bracketed(stem: str, numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return stem + numbers[0]
    runs: list[tuple[str, str]] = []
    for number in numbers:
        if runs and _follows(number, *runs[-1]):
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    ranges = (low if low == high else f"{low}-{high}" for low, high in runs)
    return f"{stem}[{','.join(ranges)}]"


def _follows(number: str, low: str, last: str) -> bool:
    """Whether ``low-number`` would go on from ``low-last`` with the same zeros."""
    return number == str(int(last) + 1).zfill(len(low))
