"""Where the ranks meet: a port from the job's id, probed; and addresses that reach us."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from hpcplat.errors import UnavailableError

# Below Linux's range for outgoing connections (32768 on), above registered services'.
LOWEST: Final = 20_000
HIGHEST: Final = 32_000
TRIES: Final = 64
STRIDE: Final = 487  # a prime that does not divide the range: neighbours stay apart


def candidates(job_id: int, tries: int = TRIES) -> Iterator[int]:
    """Yield the ports to try for a job, the same on every node; no port twice."""
    span = HIGHEST - LOWEST
    for attempt in range(tries):
        yield LOWEST + (job_id * STRIDE + attempt) % span


def free_port(job_id: int) -> int:
    """Return the first of the job's ports that nobody listens on here."""
    for port in candidates(job_id):
        if _is_free(port):
            return port
    raise UnavailableError(
        f"None of {TRIES} ports from {next(candidates(job_id))} on is free.",
        "See what listens there: ss -ltn.",
    )


def _is_free(port: int) -> bool:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # As rank 0's own server will: a connection that lingers is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def own_addresses() -> tuple[str, ...]:
    """Return by what other hosts may reach this one: its name, then its address."""
    names = [socket.gethostname()]
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: asks which way it is out
            names.append(probe.getsockname()[0])
        except OSError:
            pass  # no way out: a host on its own
    return tuple(dict.fromkeys(names))


def listening() -> socket.socket:
    """Return a server on a free port, by IPv6 and IPv4 where the host has both."""
    if socket.has_dualstack_ipv6():
        family = socket.AF_INET6
        return socket.create_server(("", 0), family=family, dualstack_ipv6=True)
    return socket.create_server(("", 0))
