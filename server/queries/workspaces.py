"""Workspaces, who is in them, and what they may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import func
from sqlmodel import Session, col, select

from hpcplat.errors import NotFoundError
from server.states import LIVE, Role
from server.tables import Job, Member, Quota, User, Workspace

# The workspace of whoever names none, under each user's own default account.
DEFAULT: Final = "default"


def role_in(session: Session, user: int, workspace_id: int) -> Role | None:
    """Return what a user is in a workspace; in the default one everybody works."""
    member = session.get(Member, (workspace_id, user))
    if member is not None:
        return Role(member.role)
    workspace = session.get(Workspace, workspace_id)
    if workspace is not None and workspace.name == DEFAULT and not workspace.account:
        return Role.DEVELOPER
    return None


def find(session: Session, name: str) -> Workspace | None:
    """Return a workspace by its name, closed or not."""
    return session.exec(
        select(Workspace).where(col(Workspace.name) == name)
    ).one_or_none()


def visible(session: Session, user: int, name: str, *, everything: bool) -> Workspace:
    """Return a workspace that a user may see.

    Raises NotFoundError, the very same for one that is somebody else's.
    """
    found = find(session, name)
    if found is None or not (
        everything or role_in(session, user, number_of(found)) is not None
    ):
        raise NotFoundError(
            f"There is no workspace {name!r}.", "List yours: hpcplat workspace ls."
        )
    return found


def listed(
    session: Session, user: int, *, everything: bool
) -> Sequence[tuple[Workspace, str]]:
    """Return the workspaces that a user may see, with the user's role, by name."""
    query = (
        select(Workspace, Member.role)
        .join(
            Member,
            (col(Member.workspace_id) == Workspace.id) & (col(Member.user_id) == user),
            isouter=True,
        )
        .where(col(Workspace.closed_at).is_(None))
        .order_by(Workspace.name)
    )
    rows = session.exec(query).all()
    return [(each, role or "") for each, role in rows if everything or role is not None]


def members(session: Session, workspace_id: int) -> Sequence[tuple[str, Role]]:
    """Return the members of a workspace and their roles, by name."""
    rows = session.exec(
        select(User.name, Member.role)
        .join(Member, col(Member.user_id) == User.id)
        .where(Member.workspace_id == workspace_id)
        .order_by(User.name)
    ).all()
    return [(name, Role(role)) for name, role in rows]


def set_member(session: Session, workspace_id: int, user: int, role: Role) -> None:
    """Put a user into a workspace, or give a member another role."""
    member = session.get(Member, (workspace_id, user))
    if member is None:
        session.add(Member(workspace_id=workspace_id, user_id=user, role=role))
    else:
        member.role = role
    session.flush()


def remove_member(session: Session, workspace_id: int, user: int) -> None:
    """Take a user out of a workspace; raises NotFoundError."""
    member = session.get(Member, (workspace_id, user))
    if member is None:
        raise NotFoundError(
            "There is no such member.", "See who there is: hpcplat workspace show."
        )
    session.delete(member)
    session.flush()


def owners(session: Session, workspace_id: int) -> int:
    """Return how many owners a workspace has."""
    return session.exec(
        select(func.count())
        .select_from(Member)
        .where(col(Member.workspace_id) == workspace_id, col(Member.role) == Role.OWNER)
    ).one()


def add(
    session: Session, name: str, account: str, parent: str, now: datetime
) -> Workspace:
    """Make a workspace."""
    made = Workspace(name=name, account=account, parent=parent, created_at=now)
    session.add(made)
    session.flush()
    return made


def live_jobs(session: Session, workspace_id: int) -> int:
    """Return how many jobs of a workspace are not over."""
    return session.exec(
        select(func.count())
        .select_from(Job)
        .where(col(Job.workspace_id) == workspace_id, col(Job.state).in_(LIVE))
    ).one()


def children(session: Session, name: str) -> Sequence[str]:
    """Return the names of the open workspaces right below one."""
    return session.exec(
        select(Workspace.name)
        .where(col(Workspace.parent) == name, col(Workspace.closed_at).is_(None))
        .order_by(Workspace.name)
    ).all()


def has_accounts(session: Session) -> bool:
    """Tell whether any workspace stands for a Slurm account: several share a site."""
    return (
        session.exec(
            select(Workspace.id)
            .where(col(Workspace.account) != "", col(Workspace.closed_at).is_(None))
            .limit(1)
        ).first()
        is not None
    )


def workable(session: Session, user: int) -> Sequence[str]:
    """Return the names of the open workspaces in which a user may submit."""
    return session.exec(
        select(Workspace.name)
        .join(Member, col(Member.workspace_id) == Workspace.id)
        .where(
            col(Member.user_id) == user,
            col(Member.role) != Role.VIEWER,
            col(Workspace.closed_at).is_(None),
        )
        .order_by(Workspace.name)
    ).all()


def quotas(session: Session, workspace_id: int) -> Mapping[str, Mapping[str, str]]:
    """Return the limits of a workspace by member; the empty name is the whole."""
    rows = session.exec(
        select(Quota).where(col(Quota.workspace_id) == workspace_id)
    ).all()
    return {row.user: row.limits for row in rows}


def set_quota(
    session: Session,
    workspace_id: int,
    user: str,
    limits: Mapping[str, str],
    by: str,
    now: datetime,
) -> None:
    """Keep the limits of a workspace or of one member, in place of those before."""
    row = session.get(Quota, (workspace_id, user))
    if row is None:
        session.add(
            Quota(
                workspace_id=workspace_id,
                user=user,
                limits=dict(limits),
                set_by=by,
                set_at=now,
            )
        )
    else:
        row.limits, row.set_by, row.set_at = dict(limits), by, now
    session.flush()


def number_of(workspace: Workspace) -> int:
    """Return the number of a stored workspace."""
    if workspace.id is None:
        raise ValueError("a stored row has a number")
    return workspace.id
