"""Which sample goes to which split: decided by hashes, so the same on every run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.names import check_name
from hpcplat.errors import InvalidError

Hashes = npt.NDArray[np.uint64]

TRAIN = "train"


def parse_splits(words: list[str]) -> dict[str, float]:
    """Read ``validation=0.05`` …; what is left over is called train.

    Raises InvalidError for what is no fraction, or more than the whole.
    """
    found: dict[str, float] = {}
    for word in words:
        name, _, share = word.partition("=")
        try:
            found[check_name(name, "split")] = float(share)
        except ValueError as error:
            raise InvalidError(
                f"{word!r} is no split.", "Write name=fraction, as validation=0.05."
            ) from error
    check_splits(found)
    return found


def check_splits(splits: Mapping[str, float]) -> None:
    """Refuse fractions that are not between 0 and 1, or sum to more than 1."""
    total = sum(splits.values())
    if any(not 0 < share <= 1 for share in splits.values()) or total > 1 + 1e-9:
        raise InvalidError(
            f"The splits {dict(splits)} do not fit in a whole.",
            "Use fractions above 0 that sum to at most 1.",
        )


def by_hash(keys: Hashes, splits: Mapping[str, float]) -> npt.NDArray[np.int8]:
    """Return each sample's split by its key's hash: equal keys stay together.

    Numbers count ``splits`` in order; the remainder (train) is the number after the
    last. A sample keeps its split when others are added later.
    """
    bounds = np.cumsum([*splits.values()])
    place = keys.astype(np.float64) / 2.0**64
    return np.searchsorted(bounds, place, side="right").astype(np.int8)


def stratified(
    keys: Hashes, strata: Hashes, splits: Mapping[str, float]
) -> npt.NDArray[np.int8]:
    """Return each sample's split so that every stratum is divided alike.

    Within a stratum the samples are ordered by hash, and each split takes its share
    of them, rounded.
    """
    order = np.lexsort((keys, strata))
    ordered = strata[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[begins, len(ordered)])
    rank = np.arange(len(ordered)) - np.repeat(begins, sizes)
    of_size = np.repeat(sizes, sizes)
    found = np.full(len(keys), len(splits), dtype=np.int8)
    for number, bound in reversed(list(enumerate(np.cumsum([*splits.values()])))):
        found[order[rank < np.rint(bound * of_size)]] = number
    return found
