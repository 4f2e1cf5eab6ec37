"""Who may do what: the whole table of roles, actions and whose thing it is."""

from __future__ import annotations

import pytest

from hpcplat.errors import ForbiddenError
from server import auth
from server.auth import Action, Principal, TokenScope, Whose
from server.states import Role

V, D, O = Role.VIEWER, Role.DEVELOPER, Role.OWNER

# role: what is allowed of one's own, and of others' in the workspace. Nothing else is.
ALLOWED: dict[Role | None, tuple[str, str]] = {
    None: ("see cancel", ""),
    V: ("see cancel", "see"),
    D: ("see cancel requeue submit", "see"),
    O: ("see cancel requeue submit manage", "see cancel requeue submit manage"),
}
CASES = [
    (role, action, whose)
    for role in (None, V, D, O)
    for action in Action
    for whose in Whose
]


@pytest.mark.parametrize(("role", "action", "whose"), CASES)
def test_what_a_role_may_do(role: Role | None, action: Action, whose: Whose) -> None:
    own, other = ALLOWED[role]
    allowed = {Whose.OWN: own, Whose.OTHER: other, Whose.FOREIGN: ""}[whose].split()
    assert auth.is_right(role, action, whose, is_admin=False) is (action in allowed)


@pytest.mark.parametrize(("role", "action", "whose"), CASES)
def test_an_administrator_may_do_all(
    role: Role | None, action: Action, whose: Whose
) -> None:
    assert auth.is_right(role, action, whose, is_admin=True)


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("scope", list(TokenScope))
def test_a_token_is_for_its_scopes_alone(action: Action, scope: TokenScope) -> None:
    admin = Principal(1, "root", is_admin=True, scopes=frozenset({scope}))
    if auth.SCOPE_OF[action] is scope:
        auth.in_scope(admin, action)
        return
    with pytest.raises(ForbiddenError, match="lacks the scope"):
        auth.in_scope(admin, action)


def test_every_action_has_a_scope() -> None:
    assert set(auth.SCOPE_OF) == set(Action)


def test_a_token_begets_none_wider_than_itself() -> None:
    narrow = frozenset({TokenScope.READ, TokenScope.MANAGE})
    person = Principal(1, "alice", is_admin=False, scopes=narrow)
    assert auth.scopes_for_token(person, narrow) == narrow
    with pytest.raises(ForbiddenError, match="write"):
        auth.scopes_for_token(person, frozenset(TokenScope))
    reader = Principal(1, "alice", is_admin=False, scopes=frozenset({TokenScope.READ}))
    with pytest.raises(ForbiddenError, match="manage"):
        auth.scopes_for_token(reader, frozenset({TokenScope.READ}))
