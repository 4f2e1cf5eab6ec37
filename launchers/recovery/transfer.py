"""A copy on its way from one keeper to another: a line, the bytes, their hash.

The bytes go from the memory that the rank filled into the socket, and from the socket
into the memory that will give them back; they are hashed piece by piece on the way,
while the processor's cache still holds them.
"""

from __future__ import annotations

import socket
from typing import Any

from xxhash import xxh3_128

from launchers.recovery.copies import EMPTY, Copy, Memory
from launchers.recovery.fingerprint import SIZE
from launchers.recovery.wire import PIECE, Wire


def send_copy(wire: Wire, word: str, copy: Copy) -> None:
    """Send a copy, and take note of its hash. Raises OSError."""
    wire.send_more(
        word=word,
        kind="copy",
        rank=copy.rank,
        generation=copy.generation,
        step=copy.step,
        size=copy.size,
        meta=copy.meta,
    )
    content, found = copy.memory.content(copy.size), xxh3_128()
    for start in range(0, copy.size, PIECE):
        piece = content[start : start + PIECE]
        found.update(piece)
        wire.socket.sendall(piece, socket.MSG_MORE)
    copy.digest = found.digest()
    wire.socket.sendall(copy.digest)


def receive_copy(wire: Wire, header: dict[str, Any], memory: Memory) -> Copy | None:
    """Receive the copy of a header; None if it ends too early or its hash is wrong."""
    size, found = int(header["size"]), xxh3_128()
    told = bytearray(SIZE)
    if not wire.receive_into(memory.content(size), found.update):
        return None
    if not wire.receive_into(memoryview(told)) or told != found.digest():
        return None
    return Copy(
        int(header["rank"]),
        int(header["generation"]),
        int(header["step"]),
        size,
        header["meta"],
        memory,
        bytes(told),
    )


def has_copy(header: dict[str, Any] | None) -> bool:
    """Return whether a copy follows an answer."""
    return header is not None and header["size"] != EMPTY
