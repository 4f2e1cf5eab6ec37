"""What can be done with workspaces and their members, each act with its audit entry."""

from __future__ import annotations

import pwd
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlmodel import Session

from hpcplat.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from server import auth
from server.auth import Action, Principal
from server.database import Database
from server.people.records import MemberAnswer, WorkspaceAnswer, WorkspaceDetails
from server.queries import audit, people, workspaces
from server.queries.audit import Entry
from server.states import Role
from server.tables import Workspace


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and from where."""

    principal: Principal
    source: str

    def entry(
        self, action: str, target: str, workspace: str, detail: str = ""
    ) -> Entry:
        """Return the audit entry of an act."""
        return Entry(
            self.principal.name, self.source, action, target, workspace, detail
        )


def listed(database: Database, principal: Principal) -> list[WorkspaceAnswer]:
    """Return the workspaces that somebody may see."""
    with database.read() as session:
        rows = workspaces.listed(
            session, principal.user_id, everything=principal.is_admin
        )
    return [_answer(each, role) for each, role in rows]


def shown(database: Database, principal: Principal, name: str) -> WorkspaceDetails:
    """Return a workspace with its members; raises NotFoundError."""
    with database.read() as session:
        found = _visible(session, principal, name)
        return _details(session, found, principal)


def make(
    database: Database, asker: Asker, name: str, account: str, parent: str
) -> WorkspaceDetails:
    """Make a workspace for a Slurm account; administrators alone."""
    auth.may_administer(asker.principal)
    now = datetime.now(UTC)
    with database.write() as session:
        if workspaces.find(session, name) is not None:
            raise ConflictError(f"There is a workspace {name}.", "Use another name.")
        if parent and workspaces.find(session, parent) is None:
            raise NotFoundError(f"There is no workspace {parent!r}.", "Make it first.")
        made = workspaces.add(session, name, account, parent, now)
        audit.add(session, asker.entry("workspace.make", account, name), now)
        return _details(session, made, asker.principal)


def close(database: Database, asker: Asker, name: str) -> None:
    """Close a workspace; its history stays.

    Raises ConflictError while it has jobs that are not over, or workspaces below it.
    """
    auth.may_administer(asker.principal)
    now = datetime.now(UTC)
    with database.write() as session:
        found = _visible(session, asker.principal, name)
        live = workspaces.live_jobs(session, workspaces.number_of(found))
        below = workspaces.children(session, name)
        if live:
            raise ConflictError(
                f"{live} jobs of workspace {name} are not over.",
                "Cancel them, or wait for them.",
            )
        if below:
            raise ConflictError(
                f"Workspace {name} has others below it: {', '.join(below)}.",
                "Close those first.",
            )
        found.closed_at = now
        audit.add(session, asker.entry("workspace.close", "", name), now)


def set_member(
    database: Database, asker: Asker, name: str, user: str, role: Role
) -> WorkspaceDetails:
    """Put somebody into a workspace, or give a member another role."""
    _check_unix_user(user)
    now = datetime.now(UTC)
    with database.write() as session:
        found = _managed(session, asker, name)
        number = workspaces.number_of(found)
        user_id = people.user_id(session, user, now)
        if role is not Role.OWNER:
            _keep_an_owner(session, number, user_id, asker.principal)
        workspaces.set_member(session, number, user_id, role)
        audit.add(session, asker.entry("member.set", user, name, role), now)
        return _details(session, found, asker.principal)


def remove_member(database: Database, asker: Asker, name: str, user: str) -> None:
    """Take somebody out of a workspace; their jobs run on, and they may end them."""
    now = datetime.now(UTC)
    with database.write() as session:
        found = _managed(session, asker, name)
        number = workspaces.number_of(found)
        user_id = people.find_user(session, user)
        if user_id is None:
            raise NotFoundError(
                f"{user} is no member of {name}.",
                f"See who is: hpcplat workspace show {name}.",
            )
        _keep_an_owner(session, number, user_id, asker.principal)
        workspaces.remove_member(session, number, user_id)
        audit.add(session, asker.entry("member.remove", user, name), now)


def workspace_of_job(
    session: Session, principal: Principal, wanted: str | None, *, is_personal: bool
) -> str:
    """Return the workspace that a job goes to; ForbiddenError where one may not submit.

    Who names none gets the one that they work in. Where no workspace stands for an
    account, or the service is one person's, there is the default one for everybody.
    A workspace that one may not see is refused in the same words as none.
    """
    if wanted is None:
        return _chosen(session, principal, is_personal=is_personal)
    found = workspaces.find(session, wanted)
    if found is None and (is_personal or principal.is_admin):
        return wanted
    if found is not None and found.closed_at is not None:
        raise ConflictError(f"Workspace {wanted} is closed.", "Use another one.")
    role = _role(session, principal, found)
    if found is None or (role is None and not principal.is_admin):
        raise _unknown(session, principal, wanted)
    auth.may_in(principal, Action.SUBMIT, role)
    return wanted


def recorded_refusal(
    database: Database, principal: Principal, source: str, request: str, why: str
) -> None:
    """Write down that somebody was refused something."""
    entry = Entry(principal.name, source, "refused", request, detail=why)
    with database.write() as session:
        audit.add(session, replace(entry, is_refusal=True), datetime.now(UTC))


def _chosen(session: Session, principal: Principal, *, is_personal: bool) -> str:
    if is_personal or principal.is_admin or not workspaces.has_accounts(session):
        return workspaces.DEFAULT
    names = workspaces.workable(session, principal.user_id)
    if len(names) == 1:
        return names[0]
    if not names:
        raise ForbiddenError(
            "You are in no workspace in which you may submit.",
            "Ask an owner of your team's workspace to add you.",
        )
    raise InvalidError(
        f"You work in several workspaces: {', '.join(names)}.",
        "Say which: workspace: NAME.",
    )


def _unknown(session: Session, principal: Principal, wanted: str) -> NotFoundError:
    names = workspaces.workable(session, principal.user_id)
    return NotFoundError(
        f"There is no workspace {wanted!r}.", f"Yours: {', '.join(names) or 'none'}."
    )


def _role(
    session: Session, principal: Principal, found: Workspace | None
) -> Role | None:
    if found is None:
        return None
    return workspaces.role_in(session, principal.user_id, workspaces.number_of(found))


def _visible(session: Session, principal: Principal, name: str) -> Workspace:
    return workspaces.visible(
        session, principal.user_id, name, everything=principal.is_admin
    )


def _managed(session: Session, asker: Asker, name: str) -> Workspace:
    """Return a workspace whose members the asker may manage."""
    found = _visible(session, asker.principal, name)
    auth.may_in(asker.principal, Action.MANAGE, _role(session, asker.principal, found))
    return found


def _keep_an_owner(
    session: Session, workspace_id: int, user: int, principal: Principal
) -> None:
    """Refuse to leave a workspace without any owner, but to an administrator."""
    role = workspaces.role_in(session, user, workspace_id)
    last = role is Role.OWNER and workspaces.owners(session, workspace_id) == 1
    if last and not principal.is_admin:
        raise ConflictError(
            "That is the workspace's only owner.", "Make somebody else an owner first."
        )


def _check_unix_user(name: str) -> None:
    try:
        pwd.getpwnam(name)
    except KeyError as error:
        raise InvalidError(
            f"There is no Unix account {name!r} on this machine.",
            "Check the spelling; a renamed account is another person here.",
        ) from error


def _answer(found: Workspace, role: str) -> WorkspaceAnswer:
    return WorkspaceAnswer(
        name=found.name, account=found.account, parent=found.parent, role=role
    )


def _details(
    session: Session, found: Workspace, principal: Principal
) -> WorkspaceDetails:
    number = workspaces.number_of(found)
    there: Sequence[tuple[str, Role]] = workspaces.members(session, number)
    role = workspaces.role_in(session, principal.user_id, number)
    return WorkspaceDetails(
        **_answer(found, role or "").model_dump(),
        members=[MemberAnswer(user=name, role=role) for name, role in there],
        quotas={k: dict(v) for k, v in workspaces.quotas(session, number).items()},
        live_jobs=workspaces.live_jobs(session, number),
    )
