"""Who sees and writes what in Aim: by role, and by the scopes of a token."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from server.aimui.install import _sees
from server.auth import ALL_SCOPES, Principal, TokenScope
from server.database import Database
from server.queries import people
from server.states import Role

READ = frozenset({TokenScope.READ})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path}/hpcplat.db")
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def alice(database: Database) -> int:
    now = datetime.now(UTC)
    with database.write() as session:
        user = people.user_id(session, "alice", now)
        for name, role in (("nlp", Role.DEVELOPER), ("vision", Role.VIEWER)):
            workspace = people.ensure_workspace(session, name, now)
            people.ensure_member(session, workspace, user, role)
        people.ensure_workspace(session, "secret", now)
    return user


@pytest.mark.parametrize(
    ("scopes", "admin", "seen"),
    [
        (ALL_SCOPES, False, {"nlp": True, "vision": False}),
        (READ, False, {"nlp": False, "vision": False}),
        (frozenset[TokenScope](), False, {}),
        (ALL_SCOPES, True, {"nlp": True, "vision": True, "secret": True}),
        (READ, True, {"nlp": False, "vision": False, "secret": False}),
    ],
)
def test_role_and_scopes_both_count(
    database: Database,
    alice: int,
    scopes: frozenset[TokenScope],
    admin: bool,
    seen: dict[str, bool],
) -> None:
    assert _sees(database, Principal(alice, "alice", admin, scopes)) == seen
