"""A connection between an agent and the coordinator: messages, a line each."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable

from hpcplat.errors import InvalidError
from launchers.loop import Loop
from launchers.messages import Message, decode, encode

LONGEST_LINE = 1024 * 1024


class Connection:
    """Sends and receives messages without ever blocking the loop.

    ``on_message`` is called for each; ``on_close`` once, when the other side is gone,
    breaks the rules, or ``close`` was called.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_message: Callable[[Connection, Message], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop, self._socket = loop, sock
        self._on_message, self._on_close = on_message, on_close
        self._received, self._to_send = b"", b""
        self._ending = False
        self.open = True
        self.peer = str(sock.getpeername()[0]).removeprefix("::ffff:")
        loop.watch(sock, self._ready)

    def send(self, message: Message) -> None:
        """Queue a message; it goes out as fast as the other side takes it."""
        if self.open:
            self._to_send += encode(message)
            self._flush()

    def close_when_sent(self) -> None:
        """Close once all that was queued is out."""
        self._ending = True
        if self.open:
            self._flush()

    def close(self) -> None:
        """Close now."""
        if self.open:
            self.open = False
            self._loop.forget(self._socket)
            self._socket.close()
            self._on_close(self)

    def _ready(self) -> None:
        if self._to_send:
            self._flush()
        if self.open:
            self._receive()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._to_send) if self._to_send else 0
        except BlockingIOError:
            sent = 0
        except OSError:  # the other side is gone
            self.close()
            return
        self._to_send = self._to_send[sent:]
        if self._ending and not self._to_send:
            self.close()
            return
        writing = selectors.EVENT_WRITE if self._to_send else 0
        self._loop.watch(self._socket, self._ready, selectors.EVENT_READ | writing)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:  # reset by the other side
            data = b""
        if not data:
            self.close()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._received) > LONGEST_LINE:
            self.close()

    def _take(self, line: bytes) -> None:
        if not self.open:
            return
        try:
            message = decode(line)
        except InvalidError:  # not one of ours at the other end
            self.close()
            return
        self._on_message(self, message)
