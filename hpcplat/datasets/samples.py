"""What a loader reads from: numbered samples, and how several sets are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.version import Split
from hpcplat.errors import InvalidError

Values = npt.NDArray[Any]
Batch = Values | Mapping[str, Values]


class Samples(Protocol):
    """Numbered samples: token windows, images, rows of columns."""

    def __len__(self) -> int: ...

    def batch(self, indices: npt.ArrayLike, positions: npt.ArrayLike) -> Batch:
        """Return samples by number: an array, or several by name, of shape (n, …).

        ``positions`` are the samples' places in the global order; what is drawn at
        random for a sample depends on its place.
        """
        ...


class Columns:
    """Rows of some columns of a split, which all have one length."""

    def __init__(self, split: Split, names: Sequence[str] = ()) -> None:
        self.names = tuple(names or split.names)
        self._arrays = {name: split[name] for name in self.names}
        lengths = {len(array) for array in self._arrays.values()}
        if len(lengths) != 1:
            raise InvalidError(
                f"The columns {', '.join(self.names)} differ in length.",
                "Name columns of one length.",
            )
        self._length = lengths.pop()

    def __len__(self) -> int:
        return self._length

    def rows(self, indices: npt.ArrayLike) -> dict[str, Values]:
        """Return rows by number, each column of shape (n, …)."""
        return {name: array.take(indices) for name, array in self._arrays.items()}

    def batch(
        self, indices: npt.ArrayLike, positions: npt.ArrayLike
    ) -> Mapping[str, Values]:
        """Return rows by number."""
        return self.rows(indices)


class Joined:
    """Several sets of equal samples as one, numbered through as in a mixture."""

    def __init__(self, sets: Sequence[Samples]) -> None:
        self._sets = tuple(sets)
        self._bounds = np.cumsum([0, *(len(one) for one in sets)])

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def batch(self, indices: npt.ArrayLike, positions: npt.ArrayLike) -> Batch:
        """Return samples by number, in the order asked for."""
        numbers = np.asarray(indices, np.int64)
        places = np.asarray(positions, np.int64)
        which = np.searchsorted(self._bounds, numbers, side="right") - 1
        order = np.argsort(which, kind="stable")
        parts = []
        for number in np.unique(which).tolist():
            here = order[which[order] == number]
            local = numbers[here] - self._bounds[number]
            parts.append(self._sets[number].batch(local, places[here]))
        found: Batch = mapped(lambda *values: _scattered(values, order), *parts)
        return found


def _scattered(parts: Sequence[Values], order: npt.NDArray[np.int64]) -> Values:
    joined = np.concatenate(parts)
    found = np.empty_like(joined)
    found[order] = joined
    return found


def mapped(action: Callable[..., Any], *batches: Batch) -> Any:  # noqa: ANN401 (as deep)
    """Apply ``action`` to the arrays of batches, name by name where they have names."""
    first = batches[0]
    if isinstance(first, Mapping):
        return {name: action(*(batch[name] for batch in batches)) for name in first}
    return action(*batches)
