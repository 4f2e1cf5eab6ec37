"""How a keeper, its agent, its ranks and other keepers talk: JSON lines, then bytes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any, Final

LONGEST: Final = 1 << 20
PIECE: Final = 1 << 18  # bytes that are taken at once: they stay in a cache


def _ignore(part: memoryview) -> None:
    """Look at nothing."""


class Wire:
    """A blocking connection that carries JSON lines, raw bytes and files; one reader."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._received = bytearray()
        self.files: list[int] = []  # that came along, in order

    def send(self, **message: Any) -> None:  # noqa: ANN401 - what JSON can say
        """Send a line."""
        self.socket.sendall(_line(message))

    def send_more(self, **message: Any) -> None:  # noqa: ANN401 - as above
        """Send a line that more will follow at once (TCP only): one packet for both."""
        self.socket.sendall(_line(message), socket.MSG_MORE)

    def send_files(self, files: list[int], **message: Any) -> None:  # noqa: ANN401
        """Send a line and open files with it (Unix sockets only)."""
        socket.send_fds(self.socket, [_line(message)], files)

    def receive(self) -> dict[str, Any] | None:
        """Return the next line; None when the other side is gone."""
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > LONGEST or not self._more():
                return None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        found: dict[str, Any] = json.loads(line)
        return found

    def receive_into(
        self, content: memoryview, look: Callable[[memoryview], None] = _ignore
    ) -> bool:
        """Fill ``content`` with the bytes that come; False if they end too early.

        ``look`` is shown each part as soon as it is there.
        """
        first = min(len(self._received), len(content))
        content[:first] = self._received[:first]
        del self._received[:first]
        look(content[:first])
        while first < len(content):
            count = self.socket.recv_into(content[first : first + PIECE])
            if not count:
                return False
            look(content[first : first + count])
            first += count
        return True

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def _more(self) -> bool:
        try:
            if self.socket.family == socket.AF_UNIX:
                data, files, _, _ = socket.recv_fds(self.socket, 65536, 4)
                self.files += files
            else:
                data = self.socket.recv(65536)
        except OSError:  # reset
            return False
        self._received += data
        return bool(data)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
