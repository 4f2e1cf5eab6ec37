"""Image rows: bytes as stored, or floats, shifted, flipped and turned by chance.

What is drawn for a sample depends on the seed and on its place in the global order
alone, so it is the same for every number of ranks, and new in each epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.mixing import uniforms
from hpcplat.datasets.samples import Values
from hpcplat.datasets.version import Split
from hpcplat.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Augmentation:
    """``shift``: up to so many pixels each way, with black moved in (a padded crop).

    ``flip``: mirror left and right, half of the images. ``turn``: up to so many
    degrees either way, around the centre, bilinear.
    """

    seed: int
    shift: int = 0
    flip: bool = False
    turn: float = 0.0

    def __post_init__(self) -> None:
        if self.shift < 0 or not 0 <= self.turn <= 180:
            raise InvalidError(
                f"A shift of {self.shift} pixels, a turn of {self.turn} degrees.",
                "Use a shift from 0 and a turn from 0 to 180.",
            )


@dataclass(frozen=True, slots=True)
class Normalization:
    """Values become (value / 255 - mean) / deviation, per channel, float32."""

    mean: Sequence[float]
    deviation: Sequence[float]


class ImageRows:
    """Images (n, height, width, channels) and labels (n,) of a split."""

    def __init__(
        self,
        split: Split,
        *,
        augmentation: Augmentation | None = None,
        normalization: Normalization | None = None,
        channels_first: bool = False,
    ) -> None:
        self._images = split["images"]
        self._labels = split["labels"]
        self._augmentation = augmentation
        self._normalization = normalization
        self._channels_first = channels_first
        self.class_names: Sequence[str] = split.attributes["class_names"]

    def __len__(self) -> int:
        return len(self._images)

    def rows(self, indices: npt.ArrayLike) -> tuple[Values, npt.NDArray[np.int64]]:
        """Return images by number as they are stored, and their labels."""
        return self._images.take(indices), self._labels.take(indices)

    def batch(
        self, indices: npt.ArrayLike, positions: npt.ArrayLike
    ) -> dict[str, Values]:
        """Return images, augmented and normalised, and labels by number."""
        images, labels = self.rows(indices)
        if self._augmentation is not None:
            images = augmented(images, self._augmentation, positions)
        if self._normalization is not None:
            images = normalized(images, self._normalization)
        if self._channels_first:
            images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        return {"images": images, "labels": labels}


def normalized(images: Values, by: Normalization) -> npt.NDArray[np.float32]:
    """Return float32 images (n, height, width, channels)."""
    deviation = np.asarray(by.deviation, np.float32)
    scale = np.float32(1 / 255) / deviation
    offset = -np.asarray(by.mean, np.float32) / deviation
    found: npt.NDArray[np.float32] = images * scale
    found += offset
    return found


def augmented(images: Values, by: Augmentation, positions: npt.ArrayLike) -> Values:
    """Return images (n, height, width, channels) shifted, flipped, turned by chance."""
    draws = uniforms(by.seed, positions, 4)
    span = 2 * by.shift + 1
    down, right = (np.floor(draws[:, k] * span).astype(int) - by.shift for k in (0, 1))
    mirrored = (draws[:, 2] < 0.5) & by.flip
    rows = np.arange(images.shape[1])[None, :] + down[:, None]
    columns = np.arange(images.shape[2])[None, :] + right[:, None]
    columns = np.where(mirrored[:, None], images.shape[2] - 1 - columns, columns)
    if by.turn:
        angles = np.deg2rad((2 * draws[:, 3] - 1) * by.turn)
        return _turned(images, rows, columns, angles)
    return _picked(images, rows[:, :, None], columns[:, None, :])


def _picked(images: Values, rows: Values, columns: Values) -> Values:
    """Return the pixels at these places of each image; black outside."""
    height, width = images.shape[1:3]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    number = np.arange(len(images))[:, None, None]
    found: Values = images[number, rows.clip(0, height - 1), columns.clip(0, width - 1)]
    found[~inside] = 0
    return found


def _turned(
    images: Values, rows: Values, columns: Values, angles: npt.NDArray[np.float64]
) -> Values:
    """Turn each image around its centre after moving it; four pixels are weighed."""
    middle = (np.array(images.shape[1:3]) - 1) / 2
    cosine, sine = (f(angles)[:, None, None] for f in (np.cos, np.sin))
    y = rows[:, :, None] - middle[0]
    x = columns[:, None, :] - middle[1]
    source_y = cosine * y + sine * x + middle[0]
    source_x = cosine * x - sine * y + middle[1]
    top, left = np.floor(source_y).astype(int), np.floor(source_x).astype(int)
    below, beside = (source_y - top)[..., None], (source_x - left)[..., None]
    found: Any = 0
    for row_step, row_share in ((0, 1 - below), (1, below)):
        for column_step, share in ((0, 1 - beside), (1, beside)):
            pixels = _picked(images, top + row_step, left + column_step)
            found = found + pixels * (row_share * share)
    turned: Values = np.rint(found).astype(images.dtype)
    return turned
