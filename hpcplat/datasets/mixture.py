"""Weighted mixtures of several datasets, exact over every stretch of the order.

Which dataset position t belongs to is not drawn but dealt. The datasets form a binary
tree; a node whose left side has the share a of its weight sends round(t * a) of its
first t samples to the left. So a node's count is never further from its share than half
a sample for each level of the tree, and over a whole period (the sum of the weights
as integers) every count is exact, wherever the period begins. (The rounded multiples
of a number are a balanced word: M. Lothaire, "Algebraic Combinatorics on Words", 2002,
chapter 2.)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.cursor import (
    STATE_FORMAT,
    Cursor,
    Numbers,
    check_state,
    share_of,
)
from hpcplat.errors import InvalidError

LARGEST_PERIOD = 2**30


@dataclass(frozen=True, slots=True)
class Part:
    """One dataset of a mixture: its samples, its weight, and its digest."""

    samples: int
    weight: float | str
    dataset: str = ""


class Mixture:
    """A place in the endless order of several datasets.

    Samples are numbered through: those of the first part, then those of the second,
    and so on (see ``Joined``). Each part has epochs of its own.
    """

    def __init__(self, parts: Sequence[Part], seed: int, *, position: int = 0) -> None:
        if not parts or position < 0:
            raise InvalidError("A mixture of no dataset.", "Give at least one part.")
        self.parts = tuple(parts)
        self.seed = seed
        self.position = position
        self.weights = as_integers([part.weight for part in parts])
        self.period = sum(self.weights)
        self._bases = np.cumsum([0, *(part.samples for part in parts)])[:-1]
        self._cursors = [
            Cursor(part.samples, _part_seed(seed, number))
            for number, part in enumerate(parts)
        ]

    @property
    def dataset(self) -> str:
        """A digest over the digests of all parts."""
        return _joined_digest(self.parts)

    def at(self, positions: npt.ArrayLike) -> Numbers:
        """Return the samples at these positions of the global order; any shape."""
        wanted = np.asarray(positions, np.int64)
        flat = wanted.ravel()
        found = np.empty_like(flat)
        for which, number, times in self._dealt(flat):
            found[which] = self._cursors[number].at(times) + self._bases[number]
        return found.reshape(wanted.shape)

    def parts_at(self, positions: npt.ArrayLike) -> Numbers:
        """Return which part the samples at these positions belong to."""
        flat = np.asarray(positions, np.int64)
        found = np.empty_like(flat)
        for which, number, _ in self._dealt(flat):
            found[which] = number
        return found

    def indices(self, start: int, count: int) -> Numbers:
        """Return the samples at positions start … start+count-1."""
        return self.at(np.arange(start, start + count, dtype=np.int64))

    def take(self, count: int) -> Numbers:
        """Return the next ``count`` samples and move on."""
        found = self.indices(self.position, count)
        self.position += count
        return found

    def share(self, batch: int, rank: int, world: int) -> Numbers:
        """Return this rank's part of the next global batch; does not move on."""
        first, last = share_of(batch, rank, world)
        return self.indices(self.position + first, last - first)

    def state(self) -> dict[str, Any]:
        """Return the whole state, for a checkpoint: JSON."""
        return {
            "format": STATE_FORMAT,
            "samples": [part.samples for part in self.parts],
            "weights": list(self.weights),
            "seed": self.seed,
            "position": self.position,
            "dataset": self.dataset,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], parts: Sequence[Part]) -> Self:
        """Return the mixture of a stored state over the same parts.

        Raises ConflictError when samples or digests differ. Weights are the state's.
        """
        samples = [part.samples for part in parts]
        check_state(state, samples, _joined_digest(parts))
        kept = zip(parts, state["weights"], strict=True)
        same = [Part(part.samples, weight, part.dataset) for part, weight in kept]
        return cls(same, state["seed"], position=state["position"])

    def _dealt(self, times: Numbers) -> list[tuple[Numbers, int, Numbers]]:
        """Return for each part: where in ``times`` it stands, and its own times."""
        order = sorted(range(len(self.parts)), key=lambda n: (-self.weights[n], n))
        everything = np.arange(len(times), dtype=np.int64)
        return list(self._deal(order, everything, times))

    def _deal(
        self, numbers: list[int], which: Numbers, times: Numbers
    ) -> list[tuple[Numbers, int, Numbers]]:
        if len(numbers) == 1:
            return [(which, numbers[0], times)]
        cut = _middle([self.weights[number] for number in numbers])
        whole = sum(self.weights[number] for number in numbers)
        left = sum(self.weights[number] for number in numbers[:cut])
        before = _left_count(times, left, whole)
        goes_left = _left_count(times + 1, left, whole) > before
        right = ~goes_left
        return [
            *self._deal(numbers[:cut], which[goes_left], before[goes_left]),
            *self._deal(numbers[cut:], which[right], (times - before)[right]),
        ]


def _left_count(times: Numbers, left: int, whole: int) -> Numbers:
    """Return round(times * left / whole), halves upwards, without overflow."""
    periods, rest = np.divmod(times, whole)
    counts: Numbers = periods * left + (2 * rest * left + whole) // (2 * whole)
    return counts


def _middle(weights: Sequence[int]) -> int:
    """Return where to cut a list so that both sides weigh about the same."""
    total = sum(weights)
    sums = [sum(weights[:cut]) for cut in range(1, len(weights))]
    return 1 + min(range(len(sums)), key=lambda n: abs(2 * sums[n] - total))


def as_integers(weights: Sequence[float | str]) -> tuple[int, ...]:
    """Return the smallest integers in the same ratio: 0.7 and 0.3 are 7 and 3.

    Raises InvalidError for a weight of 0 or less, or a ratio that is too fine.
    """
    try:
        exact = [Fraction(str(weight)) for weight in weights]
    except ValueError as error:
        raise InvalidError(f"A weight is no number ({error}).", "Mend it.") from error
    if min(exact) <= 0:
        raise InvalidError(
            f"A weight of {float(min(exact)):g}.", "Use weights above 0."
        )
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    divisor = math.gcd(*whole)
    reduced = tuple(weight // divisor for weight in whole)
    if sum(reduced) >= LARGEST_PERIOD:
        raise InvalidError(
            f"The weights {list(weights)} repeat after {sum(reduced)} samples only.",
            "Round them to fewer digits.",
        )
    return reduced


def _part_seed(seed: int, number: int) -> int:
    digest = hashlib.blake2b(f"{seed}/part {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _joined_digest(parts: Sequence[Part]) -> str:
    joined = "\n".join(part.dataset for part in parts)
    return hashlib.sha256(joined.encode()).hexdigest()
