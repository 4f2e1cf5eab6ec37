"""The keeper: one on each node; holds copies of ranks' states in memory.

It outlives the ranks. A rank puts its state into memory that it shares with the keeper
and trains on; the keeper hashes the copy and sends it to the keeper of another node.
After a loss it gives the copies to the ranks that take over, on any node.

One thread for each rank and for each rank of another node whose copies come here.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from typing import Final

from launchers.recovery.copies import EMPTY, Copies
from launchers.recovery.orders import OrderBook, orders_of
from launchers.recovery.rankdesk import RankDesk, receive
from launchers.recovery.transfer import send_copy
from launchers.recovery.wire import Wire

SETTLE_SECONDS: Final = 0.5  # to read what dead ranks had told
_CREDENTIALS: Final = struct.Struct("3i")


class Keeper:
    """The copies of a node, and those who ask for them; ``word`` lets keepers in."""

    def __init__(self, word: str) -> None:
        self.copies = Copies()
        self._book = OrderBook()
        self._word = word
        self._desks: list[RankDesk] = []

    # --- the agent's orders -----------------------------------------------------

    def obey(self, agent: Wire) -> None:
        """Do what the agent says until it is gone."""
        while (message := agent.receive()) is not None:
            if message["kind"] == "start":
                orders = orders_of(message)
                self.copies.keep_only(orders.resume, orders.generation)
                self._book.put(orders)
                self._drop_before(orders.generation)
            else:
                agent.send(held=self._listing())

    def _drop_before(self, generation: int) -> None:
        """Wait for no node on behalf of ranks that were given up."""
        old = [desk for desk in self._desks if -1 < desk.generation < generation]
        for desk in old:
            desk.hang_up()
        self._desks = [desk for desk in self._desks if desk not in old]

    def _listing(self) -> list[tuple[int, int]]:
        """Say what is held, once all that dead ranks had told is taken note of."""
        for desk in self._desks:
            desk.settled.wait(SETTLE_SECONDS)
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
            desk = RankDesk(Wire(sock), self.copies, self._book, self._word)
            self._desks.append(desk)
            threading.Thread(target=desk.serve, daemon=True).start()

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
                if message["kind"] == "fetch":
                    self._send_copy(wire, int(message["rank"]), int(message["step"]))
                elif not self._keep(wire, message):
                    break
        except (OSError, ValueError, KeyError):  # it died in the middle, or is none
            pass
        wire.close()

    def _keep(self, wire: Wire, header: dict[str, object]) -> bool:
        """Take in a copy, and say so; False if it did not come whole."""
        copy = receive(wire, header, self.copies)
        if copy is None:
            return False
        self.copies.add(copy)
        wire.send(kept=copy.step)
        return True

    def _send_copy(self, wire: Wire, rank: int, step: int) -> None:
        copy = self.copies.find(rank, step)
        if copy is None:
            wire.send(size=EMPTY)
        else:
            send_copy(wire, self._word, copy)


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
