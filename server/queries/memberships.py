"""Which workspaces somebody may look into, and whether to write there."""

from __future__ import annotations

from sqlmodel import Session, col, select

from server.states import Role
from server.tables import Member, Workspace


def workspaces_to_see(
    session: Session, user: int, *, everything: bool
) -> dict[str, bool]:
    """Return names of workspaces, and whether the user may write; by name."""
    if everything:
        return dict.fromkeys(session.exec(select(Workspace.name)).all(), True)
    wanted = (
        select(Workspace.name, Member.role)
        .join(Member, col(Member.workspace_id) == Workspace.id)
        .where(Member.user_id == user)
        .order_by(Workspace.name)
    )
    return {name: role != Role.VIEWER for name, role in session.exec(wanted).all()}
