"""MUNGE credentials for one request: what they are bound to, and how they are made."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from hpcplat import processes
from hpcplat.errors import UnavailableError

SECONDS: Final = 60  # the life of a credential
TIMEOUT: Final = 5.0


def bound_to(method: str, path: str, body: bytes) -> str:
    """Return the payload of a credential that is good for this one request."""
    digest = hashlib.sha256(body).hexdigest()
    return hashlib.sha256(f"{method}\n{path}\n{digest}".encode()).hexdigest()


def argv_encode(payload: str, socket: Path | None = None) -> list[str]:
    """Return the arguments that make a credential."""
    where = [f"--socket={socket}"] if socket else []
    return ["munge", *where, f"--string={payload}", f"--ttl={SECONDS}"]


def credential(method: str, path: str, body: bytes = b"") -> str:
    """Return a credential of this process's user for a request.

    Raises UnavailableError where munged does not run.
    """
    done = processes.run(argv_encode(bound_to(method, path, body)), timeout=TIMEOUT)
    if not done.ok:
        raise UnavailableError(
            f"munged does not answer ({done.complaint()}).",
            "Log in on a host of the cluster, or with a token.",
        )
    return done.stdout.strip()
