"""Users, workspaces, members and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Table, bindparam, update
from sqlalchemy import select as sa_select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel, col, select

from hpcplat.errors import NotFoundError
from server.states import Role
from server.tables import Member, Token, User, Workspace

# Built once: each submission asks for them, and to build a statement costs the most.
_NUMBER = sa_select(col(Workspace.id)).where(col(Workspace.name) == bindparam("name"))
_ACCOUNT = sa_select(col(Workspace.account)).where(
    col(Workspace.name) == bindparam("name")
)


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a token belongs to."""

    token_id: str
    user_id: int
    user: str
    is_admin: bool
    expires_at: datetime
    used_at: datetime | None
    scopes: frozenset[str] = frozenset()


def find_user(session: Session, name: str) -> int | None:
    """Return a user's number, if there is such a user."""
    return session.exec(select(User.id).where(col(User.name) == name)).one_or_none()


def user_id(session: Session, name: str, now: datetime, is_admin: bool = False) -> int:
    """Return a user's number; makes the row when it is the first time."""
    known = session.exec(select(User.id).where(col(User.name) == name)).one_or_none()
    if known is not None:
        return known
    _insert_once(session, User, name=name, is_admin=is_admin, created_at=now)
    return _one(session.exec(select(User.id).where(col(User.name) == name)).one())


def workspace_id(session: Session, name: str) -> int:
    """Return a workspace's number; raises NotFoundError with those there are."""
    known = _number(session, name)
    if known is not None:
        return known
    names = session.exec(select(Workspace.name).order_by(Workspace.name)).all()
    raise NotFoundError(
        f"There is no workspace {name!r}.", f"Use one of: {', '.join(names) or 'none'}."
    )


def account_of(session: Session, workspace: str) -> str:
    """Return the Slurm account of a workspace; empty for the user's default."""
    asked = session.connection().execute(_ACCOUNT, {"name": workspace})
    return asked.scalar_one_or_none() or ""


def ensure_workspace(session: Session, name: str, now: datetime) -> int:
    """Return a workspace's number; makes it when it is missing."""
    known = _number(session, name)
    if known is not None:
        return known
    _insert_once(session, Workspace, name=name, account="", created_at=now)
    return workspace_id(session, name)


def ensure_member(session: Session, workspace: int, user: int, role: Role) -> None:
    """Put a user into a workspace unless they are in it."""
    _insert_once(session, Member, workspace_id=workspace, user_id=user, role=role)


def role_of(session: Session, user: int, workspace: int) -> Role | None:
    """Return what the user is in the workspace."""
    member = session.get(Member, (workspace, user))
    return Role(member.role) if member else None


def workspaces_of(session: Session, user: int) -> Sequence[int]:
    """Return the numbers of the workspaces that the user is a member of."""
    return session.exec(
        select(Member.workspace_id).where(col(Member.user_id) == user)
    ).all()


def add_token(session: Session, token: Token) -> None:
    """Keep a token (its digest)."""
    session.add(token)


def new_token(  # noqa: PLR0913 - a row's fields
    token_id: str,
    user: int,
    digest: str,
    label: str,
    now: datetime,
    expires: datetime,
    scopes: Iterable[str] = ("manage", "read", "write"),
) -> Token:
    """Return a token's row."""
    return Token(
        id=token_id,
        user_id=user,
        digest=digest,
        label=label,
        scopes=" ".join(sorted(scopes)),
        created_at=now,
        expires_at=expires,
    )


def holder_of(session: Session, digest: str, now: datetime) -> Holder | None:
    """Return whose token this is, if it is valid now."""
    row = session.exec(
        select(Token, User)
        .join(User, col(User.id) == col(Token.user_id))
        .where(col(Token.digest) == digest, col(Token.revoked_at).is_(None))
        .where(col(Token.expires_at) > now)
    ).one_or_none()
    if row is None:
        return None
    token, user = row
    return Holder(
        token.id,
        _one(user.id),
        user.name,
        user.is_admin,
        token.expires_at,
        token.used_at,
        frozenset(token.scopes.split()),
    )


def touch_token(session: Session, token_id: str, now: datetime) -> None:
    """Note that a token was used."""
    session.execute(update(Token).where(col(Token.id) == token_id).values(used_at=now))


def tokens_of(session: Session, user: int) -> Sequence[Token]:
    """Return a user's tokens, newest first."""
    return session.exec(
        select(Token)
        .where(col(Token.user_id) == user)
        .order_by(col(Token.created_at).desc())
    ).all()


def revoke_token(session: Session, token_id: str, user: int, now: datetime) -> None:
    """End a token of the user's; raises NotFoundError."""
    token = session.get(Token, token_id)
    if token is None or token.user_id != user:
        raise NotFoundError("There is no such token.", "List yours: GET /tokens.")
    token.revoked_at = token.revoked_at or now


def _number(session: Session, workspace: str) -> int | None:
    asked = session.connection().execute(_NUMBER, {"name": workspace})
    return asked.scalar_one_or_none()


def _insert_once(session: Session, table: type[SQLModel], **values: object) -> None:
    """Insert a row unless one with its unique values is there."""
    dialect = session.get_bind().dialect.name
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    target = SQLModel.metadata.tables[str(table.__tablename__)]
    assert isinstance(target, Table)
    session.execute(insert(target).values(**values).on_conflict_do_nothing())


def _one(number: int | None) -> int:
    if number is None:
        raise ValueError("a stored row has a number")
    return number
