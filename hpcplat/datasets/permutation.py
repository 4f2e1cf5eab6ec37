"""A keyed permutation of 0 … n-1, evaluated where it is needed: no table, no start-up.

Construction: a generalised Feistel network over the rectangle of a by b ≥ n, with cycle
walking for the few numbers that fall outside of n. Source: J. Black and P. Rogaway,
"Ciphers with Arbitrary Finite Domains", CT-RSA 2002 (methods FE2 and cycle walking).
The round function is SplitMix64's finaliser. It shuffles well; it hides nothing.

Few numbers (up to 65,536) are put in the order of their hashes instead, which takes
milliseconds: a network over so small a rectangle does not reach all permutations
evenly.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.mixing import GOLDEN, Words, mixed
from hpcplat.errors import InvalidError

Numbers = npt.NDArray[np.int64]

ROUNDS = 8
LARGEST = 2**62
SORTED_UP_TO = 2**16

_32 = np.uint64(32)


class Permutation:
    """One permutation of ``size`` numbers, chosen by ``key`` (any text)."""

    def __init__(self, size: int, key: str) -> None:
        if not 0 < size <= LARGEST:
            raise InvalidError(
                f"{size} samples cannot be put in an order.", f"Use 1 to {LARGEST}."
            )
        self.size = size
        self._key = f"{key}/{size}"
        # An even side: with two odd ones only even permutations would occur.
        side = max(2, math.isqrt(size - 1) + 1)
        self._width = np.uint64(side + side % 2)
        self._height = np.uint64(-(-size // int(self._width)))
        self._keys = _round_keys(self._key)

    def __call__(self, places: npt.ArrayLike) -> Numbers:
        """Return the number at each place, both 0 … size-1; any shape."""
        if self.size <= SORTED_UP_TO:
            return _sorted(self._key, self.size)[np.asarray(places, np.int64)]
        wanted = np.asarray(places, dtype=np.uint64)
        values = self._walk(wanted.ravel())
        outside = np.flatnonzero(values >= self.size)
        while len(outside):
            values[outside] = self._walk(values[outside])
            outside = outside[values[outside] >= self.size]
        return values.astype(np.int64).reshape(wanted.shape)

    def _walk(self, values: Words) -> Words:
        row, column = np.divmod(values, self._width)
        for number in range(0, ROUNDS, 2):
            column = _shifted(column, row, self._keys[number], self._width)
            row = _shifted(row, column, self._keys[number + 1], self._height)
        mixed: Words = row * self._width + column
        return mixed


def _shifted(value: Words, other: Words, key: np.uint64, modulus: np.uint64) -> Words:
    """Return (value + F(other)) mod modulus, in place of ``value``."""
    bits = mixed(other + key)
    # The upper half scaled to the modulus: no division.
    bits >>= _32
    bits *= modulus
    bits >>= _32
    bits += value
    bits -= modulus * (bits >= modulus)
    return bits


@lru_cache(maxsize=8)
def _sorted(key: str, size: int) -> Numbers:
    counters = np.arange(1, size + 1, dtype=np.uint64) * GOLDEN
    first, second, *_ = _round_keys(key)
    hashes = mixed(mixed(counters + first) ^ second)
    return np.argsort(hashes, kind="stable").astype(np.int64)


@lru_cache(maxsize=1024)
def _round_keys(key: str) -> tuple[np.uint64, ...]:
    digest = hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS).digest()
    return tuple(np.frombuffer(digest, "<u8").astype(np.uint64))
