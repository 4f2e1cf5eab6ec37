"""What may be logged beside numbers and texts, made into bytes at once.

Nothing is imported here that the caller has not: arrays and figures are known by what
they can do.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "application/vnd.plotly+json": "json",
}


class Distribution:
    """A histogram of many values in equal bins: weights, gradients, lengths."""

    def __init__(self, values: Any, bins: int = 64) -> None:  # noqa: ANN401  # arrays of any library
        flat = _flat(values)
        finite = [value for value in flat if math.isfinite(value)]
        self.not_finite = len(flat) - len(finite)
        self.low = min(finite, default=0.0)
        self.high = max(finite, default=0.0)
        self.counts = _counts(finite, self.low, self.high, bins)

    @classmethod
    def of_counts(cls, counts: Iterable[int], low: float, high: float) -> Distribution:
        """Return the histogram with these ``counts`` in equal bins of ``low``-``high``."""
        made = cls(())
        made.counts, made.low, made.high = tuple(counts), low, high
        return made


class Image:
    """A picture: PNG or JPEG bytes, a file, a PIL image, or an array of pixels.

    An array is height by width (by 1, 3 or 4 channels), uint8, or floats from 0 to 1.
    """

    def __init__(self, data: Any, caption: str = "") -> None:  # noqa: ANN401  # see above
        self.caption = caption
        self.data = _image_bytes(data)
        png = self.data.startswith(b"\x89PNG")
        self.media_type = "image/png" if png else "image/jpeg"


@dataclass(frozen=True, slots=True)
class Picture:
    """Bytes of an image or a figure, ready to be written."""

    data: bytes
    media_type: str
    caption: str = ""


Rich: TypeAlias = Distribution | Picture


def rich(value: Any) -> Rich | None:  # noqa: ANN401  # whatever a caller logs
    """Return ``value`` as a Distribution or Picture; None if it is neither."""
    if isinstance(value, Distribution):
        return value
    if isinstance(value, Image):
        return Picture(value.data, value.media_type, value.caption)
    if hasattr(value, "savefig"):
        file = io.BytesIO()
        value.savefig(file, format="png")
        return Picture(file.getvalue(), "image/png")
    if hasattr(value, "to_plotly_json"):
        return Picture(value.to_json().encode(), "application/vnd.plotly+json")
    return None


def _flat(values: Any) -> list[float]:  # noqa: ANN401
    if hasattr(values, "detach"):
        values = values.detach()
    if hasattr(values, "flatten"):
        values = values.flatten().tolist()
    return [float(value) for value in values]


def _counts(
    values: Iterable[float], low: float, high: float, bins: int
) -> tuple[int, ...]:
    counts = [0] * bins
    scale = bins / (high - low) if high > low else 0.0
    for value in values:
        counts[min(int((value - low) * scale), bins - 1)] += 1
    return tuple(counts)


def _image_bytes(data: Any) -> bytes:  # noqa: ANN401
    if isinstance(data, bytes):
        return data
    if isinstance(data, str | Path):
        return Path(data).read_bytes()
    if hasattr(data, "save"):
        file = io.BytesIO()
        data.save(file, format="PNG")
        return file.getvalue()
    if hasattr(data, "detach"):
        data = data.detach().cpu().numpy()
    return _png(data)


def _png(pixels: Any) -> bytes:  # noqa: ANN401  # a NumPy array, not imported here
    """Return an array as PNG (RFC 2083), 8 bits a channel."""
    if pixels.dtype.kind == "f":
        pixels = (pixels.clip(0, 1) * 255).round()
    pixels = pixels.astype("uint8")
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    color = {1: 0, 3: 2, 4: 6}[channels]
    rows = pixels.reshape(height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, content)
        for kind, content in (
            (b"IHDR", header),
            (b"IDAT", zlib.compress(raw)),
            (b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
    )
