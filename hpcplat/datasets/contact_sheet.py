"""Some images of a split side by side, for a first look."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

GAP = 2
_SMALLEST = 32


def sheet(images: Pixels, columns: int) -> Pixels:
    """Return images (n, height, width, 1 or 3) in rows of ``columns``, on white.

    Very small images are enlarged by whole steps, so that they can be seen.
    """
    count, height, width, channels = images.shape
    step = max(1, -(-_SMALLEST // max(height, width)))
    large = images.repeat(step, axis=1).repeat(step, axis=2)
    height, width = height * step, width * step
    rows = -(-count // columns)
    shape = rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, channels
    whole = np.full(shape, 255, np.uint8)
    for number, image in enumerate(large):
        top = GAP + number // columns * (height + GAP)
        left = GAP + number % columns * (width + GAP)
        whole[top : top + height, left : left + width] = image
    return whole


def shrunk(image: Pixels, width: int) -> Pixels:
    """Return an image at most ``width`` pixels wide, by taking every k-th pixel mean."""
    step = -(-image.shape[1] // width)
    height, columns = image.shape[0] // step, image.shape[1] // step
    cut = image[: height * step, : columns * step].astype(np.float32)
    blocks = cut.reshape(height, step, columns, step, image.shape[2])
    mean: Pixels = blocks.mean(axis=(1, 3)).astype(np.uint8)
    return mean


def terminal_lines(image: Pixels) -> Iterator[str]:
    """Yield lines of a terminal with 24-bit colours: two rows of pixels in each."""
    colours = np.broadcast_to(image, (*image.shape[:2], 3))
    for top in range(0, len(colours) - 1, 2):
        pairs = zip(colours[top].tolist(), colours[top + 1].tolist(), strict=True)
        yield "".join(_cell(above, below) for above, below in pairs) + "\x1b[0m"


def _cell(above: list[int], below: list[int]) -> str:
    fore, back = (";".join(map(str, colour)) for colour in (above, below))
    return f"\x1b[38;2;{fore};48;2;{back}m▀"
