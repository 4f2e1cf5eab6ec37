"""Quotas set, shown, and kept the same here and in Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlmodel import Session

from hpcplat.errors import InvalidError
from hpcplat.slurm.sacctmgr_writes import limits_of
from hpcplat.slurm.scheduler import Association, Scheduler
from server import auth
from server.auth import Action
from server.database import Database
from server.people import limits
from server.people.limits import Difference, Wanted
from server.people.records import DifferenceAnswer, SyncAnswer
from server.people.workspaces import Asker
from server.queries import audit, people, workspaces
from server.queries.audit import Entry
from server.states import Role
from server.tables import Workspace


def set_quota(
    database: Database,
    scheduler: Scheduler,
    asker: Asker,
    name: str,
    user: str,
    asked: dict[str, str],
) -> dict[str, str]:
    """Set what a workspace, or one member, may have; here and in Slurm, or neither.

    A workspace's own is an administrator's to set, a member's an owner's. Raises
    InvalidError for more than the parent has.
    """
    wanted = limits.checked(asked)
    now = datetime.now(UTC)
    with database.write() as session:
        found = workspaces.visible(
            session,
            asker.principal.user_id,
            name,
            everything=asker.principal.is_admin,
        )
        number = workspaces.number_of(found)
        role = workspaces.role_in(session, asker.principal.user_id, number)
        action = Action.MANAGE if user else Action.LIMIT
        auth.may_in(asker.principal, action, role)
        _check_member(session, number, name, user)
        _check_parent(session, found, user, wanted)
        workspaces.set_quota(session, number, user, wanted, asker.principal.name, now)
        words = " ".join(f"{key}={value}" for key, value in sorted(wanted.items()))
        audit.add(session, asker.entry("quota.set", user or "all", name, words), now)
        if found.account:
            _check_qos(scheduler, found.account, user, wanted)
            # Last, inside the transaction: what Slurm refuses is not kept here.
            _write_line(scheduler, found.account, user, wanted)
    return wanted


def drift(database: Database, scheduler: Scheduler) -> list[Difference]:
    """Return what differs between the workspaces and Slurm's accounts."""
    cluster = scheduler.config().get("ClusterName", "")
    with database.read() as session:
        wanted = _wanted(session)
    return limits.differences(wanted, scheduler.associations(), cluster)


def sync(
    database: Database, scheduler: Scheduler, asker: Asker, *, write: bool, adopt: bool
) -> SyncAnswer:
    """Compare, and change nothing unless told: Slurm (write), or us (adopt)."""
    auth.may_administer(asker.principal)
    if write and adopt:
        raise InvalidError(
            "Either Slurm follows (write) or we do (adopt).", "Choose one of them."
        )
    found = drift(database, scheduler)
    if adopt:
        _adopt(database, asker, scheduler.associations())
    if write:
        for difference in filter(lambda each: each.argv, found):
            scheduler.administer(difference.argv)
            _note(database, asker, "sync.write", difference.what)
    left = drift(database, scheduler) if write or adopt else found
    return SyncAnswer(
        differences=[_answer(each) for each in found],
        left=[_answer(each) for each in left],
    )


def _answer(each: Difference) -> DifferenceAnswer:
    return DifferenceAnswer(
        what=each.what,
        ours=each.ours,
        slurms=each.slurms,
        command=" ".join(each.argv),
    )


def _note(database: Database, asker: Asker, action: str, what: str) -> None:
    with database.write() as session:
        entry = Entry(asker.principal.name, asker.source, action, what)
        audit.add(session, entry, datetime.now(UTC))


def _write_line(
    scheduler: Scheduler, account: str, user: str, wanted: dict[str, str]
) -> None:
    cluster = scheduler.config().get("ClusterName", "")
    asked = Wanted(account, user, limits=limits.in_slurms(wanted, of_member=bool(user)))
    lines = [
        line
        for line in scheduler.associations()
        if (line.account, line.user) == (account, user)
    ]
    for difference in limits.differences([asked], lines, cluster):
        scheduler.administer(difference.argv)


def _check_qos(
    scheduler: Scheduler, account: str, user: str, wanted: dict[str, str]
) -> None:
    """Refuse a member a QOS that the workspace's account may not use.

    Slurm would take it: a member's line goes before the account's.
    """
    if not user or "qos" not in wanted:
        return
    [own] = [
        line.qos
        for line in scheduler.associations()
        if (line.account, line.user, line.partition) == (account, "", "")
    ] or [()]
    foreign = [name for name in wanted["qos"].split(",") if name not in own]
    if foreign:
        raise InvalidError(
            f"QOS {foreign[0]} is not one of account {account}'s.",
            f"Choose from: {', '.join(own) or 'none'}.",
        )


def _check_member(session: Session, number: int, name: str, user: str) -> None:
    if user and user not in dict(workspaces.members(session, number)):
        raise InvalidError(f"{user} is no member of {name}.", "Add them first.")


def _check_parent(
    session: Session, found: Workspace, user: str, wanted: dict[str, str]
) -> None:
    """Refuse more than the workspace (for a member), or those above it, have."""
    name = found.name if user else found.parent
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        parent = workspaces.find(session, name)
        if parent is None:
            return
        quota = workspaces.quotas(session, workspaces.number_of(parent)).get("", {})
        over = limits.above(wanted, quota)
        if over:
            raise InvalidError(
                f"{over} {wanted[over]} is more than workspace {name} has"
                f" ({quota[over]}).",
                f"Give at most {quota[over]}.",
            )
        name = parent.parent


def _wanted(session: Session) -> list[Wanted]:
    """Return the lines that open workspaces with an account ask of Slurm."""
    found: list[Wanted] = []
    for each, _ in workspaces.listed(session, 0, everything=True):
        if not each.account:
            continue
        number = workspaces.number_of(each)
        quotas = workspaces.quotas(session, number)
        above = workspaces.find(session, each.parent) if each.parent else None
        parent = above.account if above is not None else ""
        found.append(_line(each.account, "", parent, quotas.get("")))
        for user, role in workspaces.members(session, number):
            if role is not Role.VIEWER:  # who only looks needs no place in Slurm
                found.append(_line(each.account, user, "", quotas.get(user)))
    return found


def _line(account: str, user: str, parent: str, quota: object) -> Wanted:
    asked = dict(quota) if isinstance(quota, dict) else None
    wanted = None if asked is None else limits.in_slurms(asked, of_member=bool(user))
    return Wanted(account, user, parent, wanted)


def _adopt(database: Database, asker: Asker, lines: Sequence[Association]) -> None:
    """Make workspaces, members and quotas of what Slurm has."""
    now = datetime.now(UTC)
    with database.write() as session:
        accounts = [line for line in lines if not line.user and line.account != "root"]
        names = {line.account: _adopted(session, line, now) for line in accounts}
        for line in lines:
            if line.partition or line.account not in names:
                continue
            number = names[line.account]
            if line.user:
                user = people.user_id(session, line.user, now)
                people.ensure_member(session, number, user, Role.DEVELOPER)
            ours = limits.in_ours(limits_of(line), of_member=bool(line.user))
            if ours or line.user in workspaces.quotas(session, number):
                workspaces.set_quota(
                    session, number, line.user, ours, asker.principal.name, now
                )
        audit.add(session, asker.entry("sync.adopt", "", ""), now)


def _adopted(session: Session, line: Association, now: datetime) -> int:
    """Return the workspace of an account; makes it when it is missing."""
    for each, _ in workspaces.listed(session, 0, everything=True):
        if each.account == line.account:
            return workspaces.number_of(each)
    parent = line.parent if line.parent != "root" else ""
    known = workspaces.find(session, line.account)
    if known is not None:
        known.account, known.parent, known.closed_at = line.account, parent, None
        session.flush()
        return workspaces.number_of(known)
    made = workspaces.add(session, line.account, line.account, parent, now)
    return workspaces.number_of(made)
