"""Reading who did what: a workspace's entries for its owners, all for administrators."""

from __future__ import annotations

from server import auth
from server.auth import Action, Principal
from server.database import Database
from server.people.records import AuditAnswer
from server.queries import audit, workspaces


def read(
    database: Database,
    principal: Principal,
    workspace: str | None,
    limit: int,
    before: int | None,
) -> list[AuditAnswer]:
    """Return audit entries, newest first; raises ForbiddenError or NotFoundError."""
    with database.read() as session:
        if workspace is None:
            auth.may_administer(principal)
        else:
            found = workspaces.visible(
                session, principal.user_id, workspace, everything=principal.is_admin
            )
            number = workspaces.number_of(found)
            role = workspaces.role_in(session, principal.user_id, number)
            auth.may_in(principal, Action.MANAGE, role)
        rows = audit.newest(session, workspace, limit, before)
    return [AuditAnswer.model_validate(row.model_dump()) for row in rows]
