"""The stores where ranks meet: torch's TCPStore, in a process of the coordinator's.

Ranks that meet at rank 0's own store try its port before it listens, and wait half a
second before they try again; and the store goes with its rank. These stay. Each start
of the ranks gets a fresh one, made ahead of time: in an old one stand the addresses of
ranks that are gone (torch expects a new store for every start).
"""

from __future__ import annotations

import socket
import sys
from collections import deque
from collections.abc import Sequence

from torch.distributed import TCPStore  # type: ignore[attr-defined] # not in __all__


def main(words: Sequence[str]) -> None:
    """Tell a store's port on the socket of the given number; another for each byte."""
    asker = socket.socket(fileno=int(words[0]))
    stores: deque[TCPStore] = deque(maxlen=2)  # the one in use, and the next
    while True:
        # The name is for its own client; it listens on all addresses.
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        stores.append(store)
        asker.sendall(f"{store.port}\n".encode())
        if not asker.recv(1):
            return  # the asker is gone


if __name__ == "__main__":
    main(sys.argv[1:])
