"""Free ports, found and held until the daemons have them."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from hpcplat.errors import UnavailableError

# Below Linux's range for outgoing connections (ip_local_port_range, from 32768 on),
# so that no client's connection sits on a port that a dead node comes back to.
FIRST, LAST = 20000, 32767
# One cluster has one block. A block with any port in use is left alone, so the ports
# of a node that is down stay its own as long as the cluster's other daemons live.
BLOCK = 128


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one cluster: three daemons', then one for each node."""

    base: int

    @property
    def slurmctld(self) -> int:
        """Port of slurmctld."""
        return self.base

    @property
    def slurmdbd(self) -> int:
        """Port of slurmdbd."""
        return self.base + 1

    @property
    def slurmrestd(self) -> int:
        """Port of slurmrestd."""
        return self.base + 2

    def slurmd(self, number: int) -> int:
        """Return the port of the node with this number, counted from 1."""
        return self.base + 2 + number


@contextlib.contextmanager
def hold_block() -> Iterator[Ports]:
    """Find a block of free ports and hold it: nobody else is given it meanwhile.

    The daemons can bind the ports all the same, since they ask for SO_REUSEADDR and
    nobody listens yet. Raises UnavailableError when every block has a port in use.
    """
    bases = list(range(FIRST, LAST - BLOCK + 2, BLOCK))
    start = os.getpid() % len(bases)  # processes begin apart, and so rarely collide
    for base in bases[start:] + bases[:start]:
        with contextlib.ExitStack() as stack:
            if _hold_all(stack, range(base, base + BLOCK)):
                yield Ports(base)
                return
    raise UnavailableError(
        f"No {BLOCK} neighbouring ports are free between {FIRST} and {LAST}.",
        "Take a cluster down (hpcplat cluster down) or end what uses them.",
    )


def _hold_all(stack: contextlib.ExitStack, ports: range) -> bool:
    for port in ports:
        held = stack.enter_context(socket.socket())
        try:
            held.bind(("0.0.0.0", port))  # never listens
        except OSError:
            return False
        # After the bind: another holder's bind fails, a daemon's does not (Linux
        # looks at the flag of both when the second one binds).
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True


def answers(port: int) -> bool:
    """Whether something listens on this port of the loopback address."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def socket_answers(path: str) -> bool:
    """Whether something listens on this Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(path)
        except OSError:
            return False
    return True
