"""Who asks, and what they may do: every decision in this one module.

Ways in: a bearer token, and the Unix socket (or the same process), where the kernel says
who is at the other end. What a role may do to whose things is one table, RIGHTS; what a
token is scoped to narrows it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hpcplat.errors import ForbiddenError, HpcplatError
from server.states import Role

TOKEN_PREFIX: Final = "hpcplat_"
TOKEN_BYTES: Final = 32


# What a token that stands for a login on this host is good for, and how long.
LOGIN_SECONDS: Final = 3600


class UnauthenticatedError(HpcplatError):
    """Nobody knows who asks."""


class Action(StrEnum):
    """What may be done: to a job, in a workspace, to the site."""

    SEE = "see"
    SUBMIT = "submit"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    MANAGE = "manage"  # members of a workspace, and its quotas for them
    LIMIT = "limit"  # a workspace's own quota: what its members share
    ADMINISTER = "administer"  # make and close workspaces, sync with Slurm, audit


class Whose(StrEnum):
    """Whose the thing is, as seen by who asks."""

    OWN = "own"  # one's own job; in a workspace that one is in, or was
    OTHER = "other"  # somebody else's in one's workspace, or the workspace's own
    FOREIGN = "foreign"  # of a workspace that one is not in: as good as not there


class TokenScope(StrEnum):
    """What a token may be used for; its holder may do more."""

    READ = "read"
    WRITE = "write"  # submit, cancel, requeue
    MANAGE = "manage"  # members, quotas, tokens


ALL_SCOPES: Final = frozenset(TokenScope)
SCOPE_OF: Final[Mapping[Action, TokenScope]] = {
    Action.SEE: TokenScope.READ,
    Action.SUBMIT: TokenScope.WRITE,
    Action.CANCEL: TokenScope.WRITE,
    Action.REQUEUE: TokenScope.WRITE,
    Action.MANAGE: TokenScope.MANAGE,
    Action.LIMIT: TokenScope.MANAGE,
    Action.ADMINISTER: TokenScope.MANAGE,
}

_A = Action
# Slurm lets everybody end their own jobs: whoever was made a viewer, or left the
# workspace while a job runs, must not be kept from that here.
_ALWAYS: Final = frozenset({_A.SEE, _A.CANCEL})
_OWNED: Final = frozenset({_A.SEE, _A.SUBMIT, _A.CANCEL, _A.REQUEUE, _A.MANAGE})
RIGHTS: Final[Mapping[tuple[Role | None, Whose], frozenset[Action]]] = {
    (None, Whose.OWN): _ALWAYS,
    (None, Whose.OTHER): frozenset(),
    (Role.VIEWER, Whose.OWN): _ALWAYS,
    (Role.VIEWER, Whose.OTHER): frozenset({_A.SEE}),
    (Role.DEVELOPER, Whose.OWN): frozenset({*_ALWAYS, _A.SUBMIT, _A.REQUEUE}),
    (Role.DEVELOPER, Whose.OTHER): frozenset({_A.SEE}),
    (Role.OWNER, Whose.OWN): _OWNED,
    (Role.OWNER, Whose.OTHER): _OWNED,
}


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
    scopes: frozenset[TokenScope] = ALL_SCOPES


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom this service can submit as: itself, or anybody (it runs as root)."""

    uid: int
    name: str
    is_proxy: bool = False  # it submits through sudo or slurmrestd, never as itself

    @property
    def is_root(self) -> bool:
        """Whether the service itself may become anybody."""
        return self.uid == 0

    @property
    def serves_others(self) -> bool:
        """Whether jobs can be submitted as other people."""
        return self.is_root or self.is_proxy


def own_identity(*, is_proxy: bool = False) -> Identity:
    """Return the user that this process runs as."""
    uid = os.geteuid()
    return Identity(uid, user_name(uid), is_proxy)


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
    in_scope(principal, Action.SUBMIT)
    if identity.is_proxy and principal.name in {"root", identity.name}:
        raise ForbiddenError(
            f"This service runs no jobs as {principal.name}.", "Ask as a person."
        )
    if identity.serves_others or principal.name == identity.name:
        return
    raise ForbiddenError(
        f"This service runs as {identity.name} and can't submit as {principal.name}.",
        "Use hpcplat without a service, or ask for one that runs as root.",
    )


def is_right(
    role: Role | None, action: Action, whose: Whose, *, is_admin: bool
) -> bool:
    """Decide: the one place. ``role`` is that in the thing's workspace."""
    return is_admin or action in RIGHTS.get((role, whose), frozenset())


def in_scope(principal: Principal, action: Action) -> None:
    """Refuse what the token that was shown is not for; raises ForbiddenError."""
    needed = SCOPE_OF[action]
    if needed not in principal.scopes:
        raise ForbiddenError(
            f"Your token is not for this: it lacks the scope {needed}.",
            "Make one with that scope.",
        )


def may(
    principal: Principal, action: Action, owner_id: int, role: Role | None = None
) -> None:
    """Refuse an action on a job that somebody may see but not change.

    ``role``: what the principal is in the job's workspace. Raises ForbiddenError.
    """
    in_scope(principal, action)
    whose = Whose.OWN if principal.user_id == owner_id else Whose.OTHER
    if is_right(role, action, whose, is_admin=principal.is_admin):
        return
    belongs = (
        "your role no longer allows it" if whose is Whose.OWN else "it is another's"
    )
    raise ForbiddenError(
        f"You may not {action} this job: {belongs}.",
        "Ask its owner, or an owner of the workspace.",
    )


def may_in(principal: Principal, action: Action, role: Role | None) -> None:
    """Refuse an action in a workspace that somebody may see; raises ForbiddenError."""
    in_scope(principal, action)
    whose = Whose.OWN if action is Action.SUBMIT else Whose.OTHER
    if is_right(role, action, whose, is_admin=principal.is_admin):
        return
    raise ForbiddenError(
        f"You are {role or 'no member'} in the workspace and may not {action} there.",
        "Ask an owner of the workspace.",
    )


def scopes_for_token(
    principal: Principal, wanted: frozenset[TokenScope]
) -> frozenset[TokenScope]:
    """Return the scopes of a token that the principal makes; never more than theirs.

    Without ``manage`` one makes none: a token that leaked must not beget others.
    Raises ForbiddenError.
    """
    in_scope(principal, Action.MANAGE)
    missing = wanted - principal.scopes
    if missing:
        raise ForbiddenError(
            f"You don't have the scopes {', '.join(sorted(missing))} yourself.",
            "Ask for fewer.",
        )
    return wanted


def may_administer(principal: Principal) -> None:
    """Refuse whoever is no administrator; raises ForbiddenError."""
    in_scope(principal, Action.ADMINISTER)
    if not principal.is_admin:
        raise ForbiddenError(
            "Only an administrator may do this.", "Ask an administrator of the site."
        )
