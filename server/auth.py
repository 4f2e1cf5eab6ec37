"""Who asks, and what they may do: every decision in this one module.

Two ways in: a bearer token, and the Unix socket (or the same process), where the kernel
says who is at the other end. The full roles come with workspaces; until then a person
sees and acts on their own jobs, an administrator on all.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hpcplat.errors import ForbiddenError, HpcplatError

TOKEN_PREFIX: Final = "hpcplat_"
TOKEN_BYTES: Final = 32


class UnauthenticatedError(HpcplatError):
    """Nobody knows who asks."""


class Action(StrEnum):
    """What may be done to a job."""

    SEE = "see"
    CANCEL = "cancel"
    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a Unix socket, as the kernel tells."""

    uid: int


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    user_id: int
    name: str
    is_admin: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom this service can submit as: itself, or anybody (it runs as root)."""

    uid: int
    name: str

    @property
    def is_root(self) -> bool:
        """Whether jobs can be submitted as other people."""
        return self.uid == 0


def own_identity() -> Identity:
    """Return the user that this process runs as."""
    uid = os.geteuid()
    return Identity(uid, user_name(uid))


def user_name(uid: int) -> str:
    """Return the login name of a Unix user; UnauthenticatedError if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise UnauthenticatedError(
            f"Unix user {uid} has no name on this host.", "Ask the administrator."
        ) from error


def is_admin(uid: int, identity: Identity) -> bool:
    """Tell whether a local user administers the service: root, and its own user."""
    return uid in {0, identity.uid}


def new_token() -> str:
    """Return a bearer token: 256 random bits, recognisable by its beginning."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(token: str) -> str:
    """Return what is kept of a token: a random token needs no slow hash or salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def same_digest(one: str, other: str) -> bool:
    """Compare in a time that tells nothing."""
    return hmac.compare_digest(one.encode(), other.encode())


def bearer(header: str) -> str:
    """Return the token of an Authorization header; raises UnauthenticatedError."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError(
            "The Authorization header holds no bearer token.",
            "Send Authorization: Bearer TOKEN.",
        )
    return token.strip()


def may_submit(principal: Principal, identity: Identity) -> None:
    """Refuse jobs that this service could not run as the person who asks.

    A job runs as who asked for it, never as the service: as an ordinary user it serves
    that user alone. Raises ForbiddenError.
    """
    if identity.is_root or principal.name == identity.name:
        return
    raise ForbiddenError(
        f"This service runs as {identity.name} and can't submit as {principal.name}.",
        "Use hpcplat without a service, or ask for one that runs as root.",
    )


def may(principal: Principal, action: Action, owner_id: int) -> None:
    """Refuse an action on a job that somebody may see but not change."""
    if principal.is_admin or principal.user_id == owner_id:
        return
    raise ForbiddenError(
        f"The job is somebody else's; you may not {action} it.",
        "Ask its owner, or an owner of the workspace.",
    )
