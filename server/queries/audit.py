"""Who did what, or was refused it: appended and read, never altered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, select

from server.tables import Audit


@dataclass(frozen=True, slots=True)
class Entry:
    """One act: who, from where, what, to what, in which workspace, what came of it."""

    who: str
    source: str
    action: str
    target: str = ""
    workspace: str = ""
    detail: str = ""
    is_refusal: bool = False


def add(session: Session, entry: Entry, now: datetime) -> None:
    """Append an entry."""
    session.add(
        Audit(
            at=now,
            who=entry.who[:255],
            source=entry.source[:255],
            action=entry.action[:64],
            target=entry.target[:2000],
            workspace=entry.workspace[:255],
            is_refusal=entry.is_refusal,
            detail=entry.detail[:2000],
        )
    )


def newest(
    session: Session, workspace: str | None, limit: int, before: int | None = None
) -> Sequence[Audit]:
    """Return the newest entries (of a workspace), older than the entry ``before``."""
    query = select(Audit).order_by(col(Audit.id).desc()).limit(limit)
    if workspace is not None:
        query = query.where(col(Audit.workspace) == workspace)
    if before is not None:
        query = query.where(col(Audit.id) < before)
    return session.exec(query).all()
