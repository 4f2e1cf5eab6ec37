"""Writing PNG files: grey or RGB, eight bits, no library needed.

Source: W3C Recommendation "Portable Network Graphics (PNG)", third edition.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

_COLOUR_TYPES = {1: 0, 3: 2}  # channels to PNG's own number


def encoded(image: npt.NDArray[Any]) -> bytes:
    """Return the PNG file of an image (height, width, channels), uint8, 1 or 3."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # filter 0 begins a row
    rows[:, 1:] = image.reshape(height, -1)
    body = zlib.compress(rows.tobytes(), 6)
    parts = [(b"IHDR", header), (b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)
