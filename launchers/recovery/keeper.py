"""The keeper: one on each node; holds copies of ranks' states in memory.

It outlives the ranks. A rank puts its state into memory that it shares with the keeper
and trains on; the keeper hashes the copy and sends it to the keeper of another node.
After a loss it gives the copies to the ranks that take over, on any node.

One thread for each rank and each other keeper that talks to it, and one that sends.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import queue
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from launchers.recovery.copies import (
    EMPTY,
    Copies,
    Copy,
    mapped,
    new_memory,
)
from launchers.recovery.wire import Wire

PIECE: Final = 1 << 20  # bytes that are hashed and sent at once
PATIENCE: Final = 10.0  # seconds, for another keeper to answer
_CREDENTIALS: Final = struct.Struct("3i")


@dataclass(slots=True)
class Orders:
    """What the coordinator said with the newest start of the ranks."""

    generation: int = EMPTY
    resume: int = EMPTY
    buddy: tuple[str, int] | None = None
    sources: dict[int, tuple[str, int]] = field(default_factory=dict)


class Keeper:
    """The copies of a node, and those who ask for them."""

    def __init__(self, word: str) -> None:
        self.copies = Copies()
        self._word = word
        self._orders = Orders()
        self._ordered = threading.Condition()
        self._sending: queue.SimpleQueue[tuple[Copy, Wire]] = queue.SimpleQueue()
        self._ranks: list[threading.Thread] = []

    # --- the agent's orders -----------------------------------------------------

    def obey(self, agent: Wire) -> None:
        """Do what the agent says until it is gone."""
        threading.Thread(target=self._send_all, daemon=True).start()
        while (order := agent.receive()) is not None:
            if order["kind"] == "start":
                self._start(order)
            else:
                agent.send(held=self._listing())

    def _start(self, order: dict[str, Any]) -> None:
        """Take note of where copies go and where they come from, for new ranks."""
        buddy = order["buddy"]
        sources = {
            int(rank): (address, port)
            for rank, (address, port) in order["sources"].items()
        }
        self.copies.keep_only(order["resume"], order["generation"])
        with self._ordered:
            self._orders = Orders(
                order["generation"],
                order["resume"],
                (buddy[0], buddy[1]) if buddy else None,
                sources,
            )
            self._ordered.notify_all()

    def _listing(self) -> list[tuple[int, int]]:
        """Say what is held, once all that dead ranks had told is taken note of."""
        for thread in self._ranks:
            thread.join(timeout=0.5)
        self._ranks = [thread for thread in self._ranks if thread.is_alive()]
        return self.copies.listing()

    # --- ranks of this node -----------------------------------------------------

    def serve_ranks(self, server: socket.socket) -> None:
        """Let ranks of this user in."""
        while True:
            sock, _ = server.accept()
            raw = sock.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
            if _CREDENTIALS.unpack(raw)[1] != os.getuid():
                sock.close()
                continue
            thread = threading.Thread(
                target=self._serve_rank, args=(Wire(sock),), daemon=True
            )
            self._ranks.append(thread)
            thread.start()

    def _serve_rank(self, wire: Wire) -> None:
        hello = wire.receive()
        if hello is None:
            return
        rank, size = int(hello["rank"]), int(hello["size"])
        slots = [mapped(file, size) for file in wire.files]
        orders = self._orders_of(int(hello["generation"]))
        wire.send(resume=orders.resume)
        while (message := wire.receive()) is not None:
            if message["kind"] == "want":
                self._give(wire, rank)
            elif message["kind"] == "open":
                self.copies.make_way(rank, slots[message["slot"]])
            else:
                memory = slots[message["slot"]]
                copy = Copy(
                    rank,
                    orders.generation,
                    message["step"],
                    size,
                    message["meta"],
                    memory,
                )
                self.copies.add(copy)
                self._sending.put((copy, wire))

    def _orders_of(self, generation: int) -> Orders:
        """Return the orders for ranks of a generation: a rank may come before them."""
        with self._ordered:
            self._ordered.wait_for(
                lambda: self._orders.generation >= generation, PATIENCE
            )
            return self._orders

    def _give(self, wire: Wire, rank: int) -> None:
        """Hand a rank the memory of its copy, fetched first if another node has it."""
        step = self._orders.resume
        copy = self.copies.find(rank, step) or self._fetch(rank, step)
        if copy is None:
            wire.send(ok=False)
            return
        wire.send_files(
            [copy.memory.file],
            ok=True,
            step=copy.step,
            size=copy.size,
            meta=copy.meta,
            digest=copy.digest.hex(),
        )

    def _fetch(self, rank: int, step: int) -> Copy | None:
        source = self._orders.sources.get(rank)
        if source is None:
            return None
        try:
            with socket.create_connection(source, PATIENCE) as sock:
                wire = Wire(sock)
                wire.send(word=self._word, kind="fetch", rank=rank, step=step)
                return self._take(wire, wire.receive())
        except OSError:
            return None

    # --- other keepers ----------------------------------------------------------

    def serve_keepers(self, server: socket.socket) -> None:
        """Let keepers that know the word in."""
        while True:
            sock, _ = server.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(
                target=self._serve_keeper, args=(Wire(sock),), daemon=True
            ).start()

    def _serve_keeper(self, wire: Wire) -> None:
        try:
            while (message := wire.receive()) is not None:
                word = str(message.get("word", ""))
                if not hmac.compare_digest(word, self._word):
                    break
                if message["kind"] == "copy":
                    if self._take(wire, message) is None:
                        break
                    wire.send(kept=message["step"])
                else:
                    self._send_copy(wire, int(message["rank"]), int(message["step"]))
        except (OSError, ValueError, KeyError):  # it died in the middle, or is none
            pass
        wire.close()

    def _send_copy(self, wire: Wire, rank: int, step: int) -> None:
        copy = self.copies.find(rank, step)
        if copy is None:
            wire.send(size=EMPTY)
        else:
            self._send(wire, copy, fetched=True)

    def _take(self, wire: Wire, header: dict[str, Any] | None) -> Copy | None:
        """Receive a copy; None if it ends too early, or is not what its hash says."""
        if header is None or header["size"] == EMPTY:
            return None
        rank, size = int(header["rank"]), int(header["size"])
        free = [m for m in self.copies.make_way(rank) if m.size == size]
        memory = free[0] if free else new_memory(size)
        digest = bytearray(hashlib.sha256().digest_size)
        whole = wire.receive_into(memory.content(size))
        if not whole or not wire.receive_into(memoryview(digest)):
            return None
        generation, step = int(header["generation"]), int(header["step"])
        copy = Copy(rank, generation, step, size, header["meta"], memory, bytes(digest))
        if header["fetched"] or generation >= self._orders.generation:
            self.copies.add(copy)  # else it is of ranks that were given up
        return copy

    # --- sending ----------------------------------------------------------------

    def _send_all(self) -> None:
        """Send copies to the other node as they come, and tell the ranks."""
        buddy, wire = None, None
        while True:
            copy, rank = self._sending.get()
            orders = self._orders
            if copy.generation != orders.generation:
                continue  # its rank was given up
            try:
                if wire is None or buddy != orders.buddy:
                    buddy, wire = orders.buddy, _connected(orders.buddy)
                self._send_to(wire, copy)
            except OSError:  # that node died: the agents see to it
                wire = None
            try:
                rank.send(kept=copy.step)
            except OSError:  # the rank died
                continue

    def _send_to(self, wire: Wire | None, copy: Copy) -> None:
        """Send a copy and wait until it is kept; hash it where there is nobody."""
        if wire is None:
            copy.digest = _digest(copy)
            return
        self._send(wire, copy)
        if wire.receive() is None:
            raise ConnectionResetError("the other keeper is gone")

    def _send(self, wire: Wire, copy: Copy, *, fetched: bool = False) -> None:
        wire.send(
            word=self._word,
            kind="copy",
            rank=copy.rank,
            generation=copy.generation,
            step=copy.step,
            size=copy.size,
            meta=copy.meta,
            fetched=fetched,
        )
        content, found = copy.memory.content(copy.size), hashlib.sha256()
        for start in range(0, copy.size, PIECE):
            piece = content[start : start + PIECE]
            found.update(piece)
            wire.socket.sendall(piece)
        copy.digest = found.digest()
        wire.socket.sendall(copy.digest)


def _connected(place: tuple[str, int] | None) -> Wire | None:
    if place is None:
        return None
    sock = socket.create_connection(place, PATIENCE)
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Wire(sock)


def _digest(copy: Copy) -> bytes:
    return hashlib.sha256(copy.memory.content(copy.size)).digest()


def main(words: Sequence[str]) -> None:
    """Serve on sockets of the given numbers: the agent's, the ranks', the keepers'."""
    agent, ranks, keepers = (socket.socket(fileno=int(word)) for word in words[:3])
    control = Wire(agent)
    hello = control.receive()
    if hello is None:
        return
    keeper = Keeper(hello["word"])
    for target, server in (
        (keeper.serve_ranks, ranks),
        (keeper.serve_keepers, keepers),
    ):
        threading.Thread(target=target, args=(server,), daemon=True).start()
    keeper.obey(control)
    os._exit(0)  # threads may be in the middle of something: nobody needs it now


if __name__ == "__main__":
    main(sys.argv[1:])
