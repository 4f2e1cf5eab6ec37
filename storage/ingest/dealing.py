"""Which samples of all parts go to which split; repeats are left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpcplat.errors import InvalidError
from storage.ingest.options import Splitting
from storage.ingest.parts import Hashes, Names
from storage.ingest.splits import TRAIN, by_hash, stratified

Mask = npt.NDArray[np.bool_]


class Dealt:
    """For each split, which samples of each part belong to it, parts in order.

    ``repeats`` counts the samples left out because an equal one came before, in these
    parts or among those that are ``known`` from before; None: repeats are not left out.
    """

    def __init__(
        self, parts: Sequence[Names], splitting: Splitting, known: Hashes | None = None
    ) -> None:
        keys = np.concatenate([one.keys for one in parts])
        strata = np.concatenate([one.strata for one in parts])
        fractions = splitting.fractions
        if splitting.strata:
            self._numbers = stratified(keys, strata, fractions)
        else:
            self._numbers = by_hash(keys, fractions)
        self.repeats = 0
        self._hashes = np.concatenate([one.hashes for one in parts])
        if known is not None:
            again = repeated(np.concatenate([known, self._hashes]))[len(known) :]
            self._numbers[again] = -1
            self.repeats = int(again.sum())
        rest = sum(fractions.values()) < 1 - 1e-9
        self.splits = [*fractions, *([TRAIN] if rest else [])]
        self._bounds = np.cumsum([0, *(len(one.keys) for one in parts)])
        self._refuse_empty()

    def masks(self, split: str) -> list[Mask]:
        """Return for each part which of its samples belong to a split."""
        number = self.splits.index(split)
        whole = self._numbers == number
        return [
            whole[a:b] for a, b in zip(self._bounds, self._bounds[1:], strict=False)
        ]

    def samples(self, split: str) -> int:
        """Return how many samples a split has."""
        return int((self._numbers == self.splits.index(split)).sum())

    def hashes(self) -> Hashes:
        """Return the hashes of all samples that belong to a split: shape (n, 2)."""
        return self._hashes[self._numbers >= 0]

    def _refuse_empty(self) -> None:
        if not len(self._numbers):
            raise InvalidError(
                "The sources hold no sample that is kept.",
                "Check the filters, and that the sources are not empty.",
            )
        for split in self.splits:
            if not self.samples(split):
                raise InvalidError(
                    f"Split {split} would be empty.", "Give it a larger fraction."
                )


def repeated(hashes: Hashes) -> Mask:
    """Return which samples occurred before; a first occurrence is not one of them.

    ``hashes`` has shape (n, 2): 128 bits, so that chance collisions are out of the
    question.
    """
    whole = _as_one(hashes)
    found = np.ones(len(whole), dtype=np.bool_)
    _, first = np.unique(whole, return_index=True)
    found[first] = False
    return found


def merged(one: Hashes, other: Hashes) -> Hashes:
    """Return the hashes that occur in either, sorted, each once."""
    found = np.unique(_as_one(np.concatenate([one, other])))
    return found.view("<u8").reshape(-1, 2)


def _as_one(hashes: Hashes) -> npt.NDArray[np.void]:
    """Return each hash as one value: shape (n,)."""
    return np.ascontiguousarray(hashes).view([("high", "<u8"), ("low", "<u8")])[:, 0]
