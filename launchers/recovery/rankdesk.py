"""One rank at its keeper: its copies are taken in and sent on, and one is given back."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from launchers.recovery.copies import Copies, Copy, Memory, mapped, new_memory
from launchers.recovery.fingerprint import fingerprint
from launchers.recovery.orders import OrderBook, Place
from launchers.recovery.transfer import has_copy, receive_copy, send_copy
from launchers.recovery.wire import Wire

PATIENCE: Final = 10.0  # seconds, for another keeper or an agent to answer


class RankDesk:
    """Serves one rank in a thread of its own, until the rank is gone.

    ``settled`` is set once all that the rank told is taken note of, as far as it can be:
    it is gone, or waits for its copy to be sent on.
    """

    def __init__(self, wire: Wire, copies: Copies, book: OrderBook, word: str) -> None:
        self._wire, self._copies, self._book, self._word = wire, copies, book, word
        self._buddy: Place | None = None
        self._sender: Wire | None = None
        self.generation = -1
        self.settled = threading.Event()

    def serve(self) -> None:
        """Do what the rank asks for."""
        try:
            self._serve()
        finally:
            self.settled.set()
            self.hang_up()
            self._wire.close()

    def hang_up(self) -> None:
        """Send nothing more to the other node, nor wait for it; from any thread."""
        sender = self._sender
        if sender is not None:
            with contextlib.suppress(OSError):  # it is gone already
                sender.socket.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        hello = self._wire.receive()
        if hello is None:
            return
        rank = int(hello["rank"])
        orders = self._book.of(int(hello["generation"]), PATIENCE)
        self.generation = orders.generation
        self._wire.send(resume=orders.resume)
        slots: list[Memory] = []
        while (message := self._wire.receive()) is not None:
            match message["kind"]:
                case "slots":
                    size = int(message["size"])
                    slots = [mapped(file, size) for file in self._wire.files]
                case "want":
                    self._give(rank)
                case "open":
                    self._copies.make_way(rank, slots[message["slot"]])
                case "sealed":
                    self._take(self._sealed(rank, message, slots))

    def _sealed(
        self, rank: int, message: Mapping[str, Any], slots: Sequence[Memory]
    ) -> Copy:
        memory, step = slots[message["slot"]], int(message["step"])
        return Copy(rank, self.generation, step, memory.size, message["meta"], memory)

    def _take(self, copy: Copy) -> None:
        """Hold a copy, send it to the other node, and tell the rank when it is there."""
        self._copies.add(copy)
        self.settled.set()
        if copy.generation == self._book.newest.generation:  # else it was given up
            try:
                self._send_on(copy)
            except OSError:  # that node died: the agents see to it
                self._sender = None
            with contextlib.suppress(OSError):  # the rank died
                self._wire.send(kept=copy.step)
        self.settled.clear()

    def _send_on(self, copy: Copy) -> None:
        """Send a copy and wait until it is kept; hash it where there is nobody."""
        buddy = self._book.newest.buddy
        if buddy is None:
            copy.digest = fingerprint(copy.memory.content(copy.size))
            return
        if self._sender is None or self._buddy != buddy:
            self._buddy, self._sender = buddy, _connected(buddy)
        send_copy(self._sender, self._word, copy)
        if self._sender.receive() is None:
            raise ConnectionResetError("the other keeper is gone, or silent")

    def _give(self, rank: int) -> None:
        """Hand the rank the memory of its copy, fetched first if another node has it."""
        orders = self._book.newest
        step, origin = orders.resume, orders.origins.get(rank, rank)
        copy = self._copies.find(origin, step) or self._fetch(origin, step)
        if copy is None:
            self._wire.send(ok=False)
            return
        self._wire.send_files(
            [copy.memory.file],
            ok=True,
            step=copy.step,
            size=copy.size,
            meta=copy.meta,
            digest=copy.digest.hex(),
        )

    def _fetch(self, rank: int, step: int) -> Copy | None:
        source = self._book.newest.sources.get(rank)
        if source is None:
            return None
        try:
            with socket.create_connection(source, PATIENCE) as sock:
                wire = Wire(sock)
                wire.send(word=self._word, kind="fetch", rank=rank, step=step)
                copy = receive(wire, wire.receive(), self._copies)
        except OSError:
            return None
        if copy is not None:
            self._copies.add(copy)
        return copy


def receive(wire: Wire, header: dict[str, Any] | None, copies: Copies) -> Copy | None:
    """Receive a copy into memory that is free, or new; None if it does not come whole."""
    if header is None or not has_copy(header):
        return None
    size, rank = int(header["size"]), int(header["rank"])
    free = [memory for memory in copies.make_way(rank) if memory.size == size]
    return receive_copy(wire, header, free[0] if free else new_memory(size))


def _connected(place: Place) -> Wire:
    """Return a connection to a keeper; one that is silent for long is given up."""
    sock = socket.create_connection(place, PATIENCE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Wire(sock)
