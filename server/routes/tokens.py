"""/api/v1/tokens: bearer tokens, made and revoked by their owner."""

from __future__ import annotations

import logging
import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool

from hpcplat.munge import bound_to
from server import auth, auth_munge
from server.auth import UnauthenticatedError
from server.dependencies import (
    Asking,
    Body,
    Serving,
    Source,
    principal_of_uid,
    source_of,
)
from server.doors import Doors
from server.queries import audit, people
from server.queries.audit import Entry
from server.schemas import NewToken, TokenAnswer, TokenList, TokenRequest
from server.service import Service

logger = logging.getLogger("hpcplat.login")

router = APIRouter(prefix="/tokens", tags=["tokens"])


@router.post("", status_code=201, summary="Make a token")
def make(
    serving: Serving, asking: Asking, source: Source, request: TokenRequest
) -> NewToken:
    """Make a token for yourself; its value is shown this once."""
    token = auth.new_token()
    now = datetime.now(UTC)
    row = people.new_token(
        secrets.token_hex(8),
        asking.user_id,
        auth.digest(token),
        request.label,
        now,
        now + timedelta(days=request.days),
        auth.scopes_for_token(asking, request.scopes),
    )
    with serving.database.write() as session:
        people.add_token(session, row)
        made = Entry(asking.name, source, "token.make", row.id, detail=row.scopes)
        audit.add(session, made, now)
    return NewToken(**TokenAnswer.model_validate(row).model_dump(), token=token)


@router.post("/munge", status_code=201, summary="Log in from a host of the cluster")
async def log_in(request: Request, serving: Serving, content: Body) -> NewToken:
    """Exchange a MUNGE credential for a token of an hour.

    Send `Authorization: MUNGE CREDENTIAL`; its payload is the SHA-256 of the method, the
    path and the body's SHA-256, a line each. It is good once.
    """
    doors: Doors = request.app.state.doors
    source = source_of(request)
    try:
        uid = await run_in_threadpool(_munge_uid, request, doors, content)
    except UnauthenticatedError as error:
        doors.failed(source)
        logger.warning("login by MUNGE from %s refused: %s", source, error.what)
        raise
    return await run_in_threadpool(_logged_in, serving, uid, source)


@router.get("", summary="List your tokens")
def list_tokens(serving: Serving, asking: Asking) -> TokenList:
    """Return your tokens, never their values."""
    with serving.database.read() as session:
        rows = people.tokens_of(session, asking.user_id)
    return TokenList(tokens=[TokenAnswer.model_validate(row) for row in rows])


def _munge_uid(request: Request, doors: Doors, content: bytes) -> int:
    credential = auth_munge.credential_in(request.headers.get("authorization", ""))
    payload = bound_to(request.method, request.url.path, content)
    return auth_munge.uid_of(credential, payload, doors.munge_socket)


def _logged_in(serving: Service, uid: int, source: str) -> NewToken:
    asking = principal_of_uid(serving, uid)
    token = auth.new_token()
    now = datetime.now(UTC)
    row = people.new_token(
        secrets.token_hex(8),
        asking.user_id,
        auth.digest(token),
        "login by MUNGE",
        now,
        now + timedelta(seconds=auth.LOGIN_SECONDS),
        asking.scopes,
    )
    with serving.database.write() as session:
        people.add_token(session, row)
        audit.add(session, Entry(asking.name, source, "login.munge", row.id), now)
    return NewToken(**TokenAnswer.model_validate(row).model_dump(), token=token)


@router.delete("/{token_id}", status_code=204, summary="Revoke a token")
def revoke(
    serving: Serving,
    asking: Asking,
    source: Source,
    token_id: Annotated[str, Path(pattern="^[0-9a-f]{16}$")],
) -> None:
    """End a token of yours; within seconds nobody can use it any more."""
    now = datetime.now(UTC)
    with serving.database.write() as session:
        people.revoke_token(session, token_id, asking.user_id, now)
        audit.add(session, Entry(asking.name, source, "token.revoke", token_id), now)
