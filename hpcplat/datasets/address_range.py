"""Many files as one stretch of memory: reserve addresses, then map files into them.

Python's mmap cannot choose the address, so this calls mmap(2) itself. Files that
follow each other without a gap make one flat array, however many shards there are:
a row that crosses from one shard into the next needs no special case.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

_NONE = 0
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
# So that the kernel can use large pages.
_ALIGNMENT = 2 * 2**20
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _checked_mmap(
    address: int | None, size: int, protection: int, flags: int, handle: int
) -> int:
    got: int | None = _libc.mmap(address, size, protection, flags, handle, 0)
    if got is None or got == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return got


class AddressRange:
    """Reserved addresses that files are mapped into, read-only; freed with the object.

    ``size`` is in bytes. Raises OSError when the addresses cannot be had
    (``ulimit -v``).
    """

    def __init__(self, size: int) -> None:
        self.size = max(size, 1)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        reserved = self.size + _ALIGNMENT
        start = _checked_mmap(None, reserved, _NONE, flags, -1)
        weakref.finalize(self, _libc.munmap, start, reserved)
        self.address = -(-start // _ALIGNMENT) * _ALIGNMENT

    def place(self, handle: int, offset: int, length: int) -> None:
        """Map the first ``length`` bytes of an open file at ``offset`` (whole pages)."""
        if not 0 <= offset <= offset + length <= self.size:
            raise ValueError(f"{offset}+{length} is outside of {self.size} bytes")
        _checked_mmap(
            self.address + offset,
            length,
            mmap.PROT_READ,
            mmap.MAP_SHARED | _MAP_FIXED,
            handle,
        )

    def forget_pages(self) -> None:
        """Take all pages out of this process's resident set; they are read again."""
        _libc.madvise(self.address, self.size, mmap.MADV_DONTNEED)

    def expect_random(self, offset: int, length: int) -> None:
        """Tell the kernel to read no more than what is asked for."""
        _libc.madvise(self.address + offset, length, mmap.MADV_RANDOM)

    def will_need(self, offset: int, length: int) -> None:
        """Have the kernel begin to read a stretch, without waiting for it."""
        start = offset - offset % mmap.PAGESIZE
        size = min(offset + length, self.size) - start
        _libc.madvise(self.address + start, size, mmap.MADV_WILLNEED)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The bytes as NumPy sees them; arrays made from it keep this object alive."""
        return {
            "version": 3,
            "shape": (self.size,),
            "typestr": "|u1",
            "data": (self.address, True),
        }
