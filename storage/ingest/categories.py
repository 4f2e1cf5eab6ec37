"""Words that become numbers: each part has a list of its own, a version has one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]


class Coder:
    """Numbers words in the order in which they come."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {word: n for n, word in enumerate(words)}

    @property
    def words(self) -> list[str]:
        """The words by number."""
        return list(self._numbers)

    def codes(self, words: Sequence[str]) -> Codes:
        """Return the numbers of some words."""
        found = [self._numbers.setdefault(word, len(self._numbers)) for word in words]
        return np.array(found, dtype=np.int64)


def joined(known: Sequence[str], lists: Iterable[Sequence[str]]) -> list[str]:
    """Return one list: what is known already, then what is new, sorted.

    Sorted as numbers where all new words are whole numbers.
    """
    new = {word for words in lists for word in words} - set(known)
    numbers = all(word.isascii() and word.isdigit() for word in new)
    order: Any = (lambda word: (int(word), word)) if numbers else None
    return [*known, *sorted(new, key=order)]


def translated(codes: Codes, words: Sequence[str], whole: Sequence[str]) -> Codes:
    """Return numbers in the whole list for numbers in a part's own."""
    place = {word: number for number, word in enumerate(whole)}
    table = np.array([place[word] for word in words], dtype=np.int64)
    return table[codes] if len(table) else codes
