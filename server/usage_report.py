"""Quotas and usage as somebody may see them: one's own, an owner's members', all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from hpcplat.errors import InvalidError, NotFoundError
from server import quotas
from server.auth import Principal
from server.people import usage
from server.people.records import (
    LimitAnswer,
    StandingAnswer,
    StandingList,
    UsageAnswer,
    UserUse,
)
from server.queries import workspaces
from server.queries.starts import starts_since
from server.quotas import Book, Usage
from server.service import Service
from server.states import Role
from server.usage_watching import Watching, accounting_of

# It counts seconds since 1970, in which 0 stands for no time at all.
SLURMS_TIME_BEGINS: Final = datetime(1970, 1, 2, tzinfo=UTC)


def standings(service: Service, principal: Principal, name: str | None) -> StandingList:
    """Return limits and use of the workspaces that somebody may see, or of one."""
    book = service.quota_book()
    with service.database.read() as session:
        rows = workspaces.listed(
            session, principal.user_id, everything=principal.is_admin
        )
    seen = [each for each, _ in rows if name in (None, each.name)]
    if name is not None and not seen:
        raise NotFoundError(
            f"There is no workspace {name!r}.", "List yours: hpcplat workspace ls."
        )
    return StandingList(
        standings=[
            _standing(book, each.name, each.account, principal.name)
            for each in seen
            if book is not None and each.account
        ]
    )


def used(
    service: Service, principal: Principal, since: datetime, until: datetime
) -> UsageAnswer:
    """Return the usage of a period; raises InvalidError for one that is none."""
    if since < SLURMS_TIME_BEGINS:
        raise InvalidError(
            f"{since.date()} is before Slurm's time begins.",
            f"Give a since of {SLURMS_TIME_BEGINS:%Y-%m-%d} or later.",
        )
    if since >= until:
        raise InvalidError(
            "The period ends before it begins.", "Give an earlier since."
        )
    with service.database.read() as session:
        every = workspaces.listed(session, principal.user_id, everything=True)
        starts = starts_since(session, service.site.name, since)
    names = {each.account: each.name for each, _ in every if each.account}
    owned = {each.name for each, role in every if role == Role.OWNER}
    config = service.site.facts().config
    rows = usage.report(
        service.site.scheduler.history(since),
        since,
        until,
        names,
        service.policy.gpu_hour_price,
        Watching(starts, accounting_of(config)).of,
    )
    seen = [
        row
        for row in rows
        if principal.is_admin or row.user == principal.name or row.workspace in owned
    ]
    return UsageAnswer(since=since, until=until, rows=seen)


def _standing(book: Book, name: str, account: str, user: str) -> StandingAnswer:
    limits = quotas.all_limits(book, account, user, "")
    share = book.shares.get((account, ""))
    users = sorted(member for line, member in book.lines if line == account and member)
    return StandingAnswer(
        workspace=name,
        account=account,
        limits=[
            LimitAnswer(
                owner=limit.owner,
                name=limit.name,
                what=limit.what,
                allowed=limit.allowed,
                used=limit.used,
            )
            for limit in limits
        ],
        users=[_use(book, account, each) for each in users],
        norm_shares=share.norm_shares if share else None,
        effective_usage=share.effective_usage if share else None,
    )


def _use(book: Book, account: str, user: str) -> UserUse:
    held = book.by_line.get((account, user), Usage())
    return UserUse(
        user=user,
        gpus=held.tres.get("gres/gpu", 0),
        running=held.running,
        waiting=held.waiting,
        fair_share=quotas.fair_share(book, account, user),
    )
