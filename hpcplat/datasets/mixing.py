"""Hashing of whole arrays of numbers: random-looking, the same everywhere.

Source: the finaliser of SplitMix64 in G. Steele, D. Lea and C. Flood, "Fast Splittable
Pseudorandom Number Generators", OOPSLA 2014. NumPy's own generators are not used
where results must stay the same across its releases.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)

_30, _27, _31, _11 = (np.uint64(shift) for shift in (30, 27, 31, 11))
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def mixed(bits: Words) -> Words:
    """Return the finaliser of each word; works in place."""
    bits ^= bits >> _30
    bits *= _FIRST
    bits ^= bits >> _27
    bits *= _SECOND
    bits ^= bits >> _31
    return bits


def uniforms(seed: int, places: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    """Return ``count`` numbers in [0, 1) for each place: shape (n, count).

    They depend on the seed and the place alone.
    """
    base = np.asarray(places, np.int64).astype(np.uint64) * GOLDEN + _seed_word(seed)
    columns = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    bits = mixed(mixed(base.copy())[:, None] + columns)
    found: npt.NDArray[np.float64] = (bits >> _11).astype(np.float64) * 2.0**-53
    return found


@lru_cache(maxsize=64)
def _seed_word(seed: int) -> np.uint64:
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
