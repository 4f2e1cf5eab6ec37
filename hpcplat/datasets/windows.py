"""Token windows: a token stream cut into training samples of equal length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.version import Split
from hpcplat.errors import InvalidError


class TokenWindows:
    """Window i is the tokens i·length … (i+1)·length of the stream, both included.

    So each window holds ``length`` inputs and, one place on, ``length`` targets;
    neighbours share one token. Windows run across document borders; ``segments``
    and ``resets`` say where the borders are.
    """

    def __init__(self, split: Split, length: int) -> None:
        if length < 1:
            raise InvalidError(f"A window of {length} tokens.", "Use at least 1.")
        self.length = length
        self.split = split
        self._tokens = split["tokens"]
        self._documents = split["documents"]

    def __len__(self) -> int:
        return max(0, (len(self._tokens) - 1) // self.length)

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids, special ones included."""
        return int(self.split.attributes["vocabulary_size"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the token ids: uint16 or uint32."""
        return self._tokens.dtype

    def rows(self, indices: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return token ids of windows by number: shape (n, length + 1)."""
        return self._tokens.windows(self._starts(indices), self.length + 1)

    def batch(
        self, indices: npt.ArrayLike, positions: npt.ArrayLike
    ) -> npt.NDArray[Any]:
        """Return token ids of windows by number: shape (n, length + 1)."""
        return self.rows(indices)

    def segments(self, indices: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return for each token which document of its window it belongs to.

        Shape (n, length + 1), counted from 0 in each window.
        """
        return np.cumsum(self.resets(indices), axis=1, dtype=np.int32)

    def resets(self, indices: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return where a new document begins inside a window: (n, length + 1).

        The first place is never marked: a window always begins afresh.
        """
        starts = self._starts(indices)
        offsets = self._documents.all_rows()
        low = np.searchsorted(offsets, (starts + 1).astype(offsets.dtype))
        high = np.searchsorted(
            offsets, (starts + self.length + 1).astype(offsets.dtype)
        )
        found = high - low
        rows = np.repeat(np.arange(len(starts)), found)
        first = np.repeat(low - np.cumsum(found) + found, found)
        borders = offsets[first + np.arange(len(rows))].astype(np.int64)
        marks = np.zeros((len(starts), self.length + 1), dtype=np.bool_)
        marks[rows, borders - starts[rows]] = True
        return marks

    def positions(self, indices: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return each token's place since its document or window began."""
        resets = self.resets(indices)
        places = np.arange(resets.shape[1], dtype=np.int32)
        begins = np.maximum.accumulate(np.where(resets, places, 0), axis=1)
        return (places - begins).astype(np.int32)

    def loss_mask(self, indices: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which targets count: not the first token of another document.

        Shape (n, length), aligned with the targets ``rows[:, 1:]``.
        """
        return ~self.resets(indices)[:, 1:]

    def _starts(self, indices: npt.ArrayLike) -> npt.NDArray[np.int64]:
        numbers = np.asarray(indices, dtype=np.int64)
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise InvalidError(
                f"Window {int(numbers.max())} of {len(self)} was asked for.",
                "Count from 0.",
            )
        return numbers * self.length
