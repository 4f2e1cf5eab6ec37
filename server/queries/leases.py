"""Leases: what one service at a time may do, and how the others know."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, or_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from server.tables import Lease


def take(
    session: Session, name: str, holder: str, now: datetime, lasts: timedelta
) -> bool:
    """Take or prolong a lease; False while somebody else holds it."""
    _ensure(session, name, now)
    done = session.execute(
        update(Lease)
        .where(col(Lease.name) == name)
        .where(or_(col(Lease.holder) == holder, col(Lease.expires_at) <= now))
        .values(holder=holder, expires_at=now + lasts)
    )
    return _count(done) == 1


def holds(session: Session, name: str, holder: str, now: datetime) -> bool:
    """Tell whether the lease is still ours, and keep it so up to the commit.

    A service that was stopped for longer than its lease finds out here, inside the
    transaction that writes, so that its old knowledge is never written.
    """
    lease = session.exec(
        select(Lease).where(col(Lease.name) == name).with_for_update()
    ).one_or_none()
    return lease is not None and lease.holder == holder and lease.expires_at > now


def give_up(session: Session, name: str, holder: str, now: datetime) -> None:
    """Let go of a lease that we hold, so that another need not wait."""
    session.execute(
        update(Lease)
        .where(col(Lease.name) == name, col(Lease.holder) == holder)
        .values(holder="", expires_at=now)
    )


def _ensure(session: Session, name: str, now: datetime) -> None:
    if session.get(Lease, name) is not None:
        return
    dialect = session.get_bind().dialect.name
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    session.execute(
        insert(Lease)
        .values(name=name, holder="", expires_at=now)
        .on_conflict_do_nothing()
    )


def _count(result: object) -> int:
    return int(getattr(result, "rowcount", 0))


def oldest_expiry(session: Session) -> datetime | None:
    """Return when the first of the held leases ends."""
    return session.exec(
        select(func.min(Lease.expires_at)).where(col(Lease.holder) != "")
    ).one()
