"""What routes ask for: the service, who is asking, the body within its limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from server import auth
from server.auth import Peer, Principal, TokenScope, UnauthenticatedError
from server.auth_oidc import looks_like_one
from server.doors import Doors
from server.problems import LARGEST_BODY, too_large
from server.queries import people
from server.queries.jobs import Scope
from server.remembering import Remembered
from server.service import Service

TOUCH_EVERY: Final = timedelta(minutes=5)


async def service(request: Request) -> Service:
    """Return the service that this app is made for."""
    return _service_of(request)


def _service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


Serving = Annotated[Service, Depends(service)]


# What every request needs takes the service from the request itself: a dependency of a
# dependency costs FastAPI more than what it returns.
async def principal(request: Request) -> Principal:
    """Return who asks; raises UnauthenticatedError.

    A token goes before the socket's word, so that a person can act as a narrower self.
    """
    doors: Doors = request.app.state.doors
    source = source_of(request)
    try:
        found = await _identified(request, _service_of(request), doors)
    except UnauthenticatedError:
        doors.failed(source)
        raise
    if not found.is_admin:
        doors.rates.take(found.name)
    return found


async def _identified(request: Request, serving: Service, doors: Doors) -> Principal:
    header = request.headers.get("authorization")
    peer: Peer | None = getattr(request.state, "peer", None)
    if header is not None:
        token = auth.bearer(header)
        if doors.oidc is not None and looks_like_one(token):
            name = await run_in_threadpool(doors.oidc.user_of, token)
            request.state.principal = await run_in_threadpool(_by_name, serving, name)
            found: Principal = request.state.principal
            return found
        return await _remembered(request, f"token:{auth.digest(token)}", serving)
    if peer is not None:
        return await _remembered(request, f"peer:{peer.uid}", serving)
    raise UnauthenticatedError(
        "The request says nothing of who asks.",
        "Send Authorization: Bearer TOKEN, or use the Unix socket.",
    )


Asking = Annotated[Principal, Depends(principal)]


async def source(request: Request) -> str:
    """Return where a request comes from: an address, or the Unix socket."""
    return source_of(request)


def source_of(request: Request) -> str:
    """Return where a request comes from, by the connection and no header."""
    if getattr(request.state, "peer", None) is not None:
        return "unix"
    return request.client.host if request.client else "unknown"


Source = Annotated[str, Depends(source)]


async def scope(request: Request, asking: Asking) -> Scope:
    """Return whose jobs the principal may see."""
    if asking.is_admin:
        return Scope(everything=True, user_id=asking.user_id)
    return await run_in_threadpool(_scope, _service_of(request), asking)


Seeing = Annotated[Scope, Depends(scope)]


async def body(request: Request) -> bytes:
    """Return the request's body, of at most the size of a spec."""
    return await limited_body(request, LARGEST_BODY)


async def bulk_body(request: Request) -> bytes:
    """Return the request's body, of at most the size of many specs."""
    return await limited_body(request, 16 * LARGEST_BODY)


Body = Annotated[bytes, Depends(body)]
BulkBody = Annotated[bytes, Depends(bulk_body)]


async def limited_body(request: Request, limit: int) -> bytes:
    """Read a body and stop at the limit, whatever Content-Length says."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > limit:
        raise too_large(limit)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


async def _remembered(request: Request, who: str, serving: Service) -> Principal:
    request.state.principal = await _looked_up(request, who, serving)
    found: Principal = request.state.principal
    return found


async def _looked_up(request: Request, who: str, serving: Service) -> Principal:
    known: Remembered[str, Principal] = request.app.state.principals
    found = known.get(who)
    if found is not None:
        return found
    kind, _, name = who.partition(":")
    look_up = _by_token if kind == "token" else _by_peer
    return known.keep(who, await run_in_threadpool(look_up, serving, name))


def _by_token(serving: Service, token_digest: str) -> Principal:
    now = datetime.now(UTC)
    with serving.database.read() as session:
        holder = people.holder_of(session, token_digest, now)
    if holder is None:
        raise UnauthenticatedError(
            "The token is not valid (any more).", "Ask for a new one."
        )
    if holder.used_at is None or now - holder.used_at > TOUCH_EVERY:
        with serving.database.write() as session:
            people.touch_token(session, holder.token_id, now)
    scopes = frozenset(s for s in TokenScope if s in holder.scopes)
    return Principal(holder.user_id, holder.user, holder.is_admin, scopes)


def _by_name(serving: Service, name: str) -> Principal:
    """Return a person that an issuer vouches for; never an administrator by that."""
    with serving.database.write() as session:
        known = people.user_id(session, name, datetime.now(UTC))
    return Principal(known, name, is_admin=False)


def principal_of_uid(serving: Service, uid: int) -> Principal:
    """Return whom the kernel, or munged, says that a Unix user's number is."""
    return _by_peer(serving, str(uid))


def _by_peer(serving: Service, uid: str) -> Principal:
    name = auth.user_name(int(uid))
    admin = auth.is_admin(int(uid), serving.identity)
    with serving.database.read() as session:
        known = people.find_user(session, name)
    if known is None:
        with serving.database.write() as session:
            known = people.user_id(session, name, datetime.now(UTC), admin)
    return Principal(known, name, admin)


def _scope(serving: Service, asking: Principal) -> Scope:
    with serving.database.read() as session:
        mine = people.workspaces_of(session, asking.user_id)
    return Scope(False, asking.user_id, tuple(mine))
