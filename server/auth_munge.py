"""MUNGE credentials: who asks on the cluster's hosts, without any password.

A credential is bound to one request: its payload is the digest of the method, the
path and the body. munged itself refuses one that is too old or comes a second time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hpcplat import processes
from hpcplat.errors import UnavailableError
from hpcplat.munge import TIMEOUT
from server.auth import UnauthenticatedError, same_digest

SCHEME: Final = "munge"
LONGEST: Final = 4096  # bytes of a credential
_CREDENTIAL: Final = re.compile(r"MUNGE:[A-Za-z0-9+/=]+:", re.ASCII)
_UID: Final = re.compile(r"^UID:\s+(?P<uid>[0-9]+)$", re.MULTILINE)
# munge.h: below these numbers munged itself failed, from here on the credential did.
_FIRST_REFUSAL: Final = 8
_REFUSALS: Final = {
    15: "it is too old",
    16: "it is from the future",
    17: "it was replayed",
    18: "it is for somebody else",
}


def argv_decode(socket: Path | None) -> list[str]:
    """Return the arguments that read a credential from the standard input."""
    where = [f"--socket={socket}"] if socket else []
    return ["unmunge", *where, "--numeric", "--keys=STATUS,UID"]


def uid_of(credential: str, payload: str, socket: Path | None) -> int:
    """Return whose credential it is; UnauthenticatedError if it is not for this.

    One that munged has seen before, or that is too old, is refused by munged.
    """
    if len(credential) > LONGEST or not _CREDENTIAL.fullmatch(credential):
        raise _refused("it is none")
    done = processes.run(argv_decode(socket), timeout=TIMEOUT, stdin=credential)
    if done.status >= _FIRST_REFUSAL:
        raise _refused(_REFUSALS.get(done.status, "it can't be read"))
    if not done.ok:
        raise UnavailableError(
            f"munged does not answer (unmunge ended with {done.status}).",
            "See that it runs.",
        )
    head, _, content = done.stdout.partition("\n\n")
    uid = _UID.search(head)
    if uid is None or not same_digest(content, payload):
        raise _refused("it is for another request")
    return int(uid["uid"])


def credential_in(header: str) -> str:
    """Return the credential of an Authorization header."""
    scheme, _, credential = header.partition(" ")
    if scheme.lower() != SCHEME:
        raise UnauthenticatedError(
            "The Authorization header holds no MUNGE credential.",
            "Send Authorization: MUNGE CREDENTIAL.",
        )
    return credential.strip()


def _refused(why: str) -> UnauthenticatedError:
    return UnauthenticatedError(
        f"The MUNGE credential is not taken: {why}.", "Make a new one for this request."
    )
