"""Reading zstd files frame by frame, noticing when the last one is cut short.

The library's own stream reader takes a file that ends in the middle of a frame for a
complete one.
"""

from __future__ import annotations

import io
from typing import IO, Any

_BLOCK = 128 * 2**10


class ZstdFile(io.RawIOBase):
    """The decompressed bytes of a file; raises EOFError if a frame is not complete.

    ``decompressor`` is a ``zstandard.ZstdDecompressor``.
    """

    def __init__(self, raw: IO[bytes], decompressor: Any) -> None:  # noqa: ANN401
        self._raw = raw
        self._decompressor = decompressor
        self._frame: Any = None
        self._left = b""  # compressed bytes that were read but not used
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (any buffer)
        """Fill a buffer; 0 at the end."""
        while not self._ready:
            if not self._advance():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _advance(self) -> bool:
        """Decompress some more; return whether there was anything left."""
        block = self._left or self._raw.read(_BLOCK)
        self._left = b""
        if not block:
            if self._frame is not None:
                raise EOFError("it ends in the middle of a zstd frame")
            return False
        if self._frame is None:
            self._frame = self._decompressor.decompressobj()
        self._ready = memoryview(self._frame.decompress(block))
        if self._frame.eof:
            self._left = self._frame.unused_data
            self._frame = None
        return True
