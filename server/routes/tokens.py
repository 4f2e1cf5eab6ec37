"""/api/v1/tokens: bearer tokens, made and revoked by their owner."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path

from server import auth
from server.dependencies import Asking, Serving, Source
from server.queries import audit, people
from server.queries.audit import Entry
from server.schemas import NewToken, TokenAnswer, TokenList, TokenRequest

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


@router.get("", summary="List your tokens")
def list_tokens(serving: Serving, asking: Asking) -> TokenList:
    """Return your tokens, never their values."""
    with serving.database.read() as session:
        rows = people.tokens_of(session, asking.user_id)
    return TokenList(tokens=[TokenAnswer.model_validate(row) for row in rows])


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
