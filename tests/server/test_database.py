"""The database: migrations, transactions, leases; on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlmodel import SQLModel

from hpcplat.errors import InvalidError, UnavailableError
from server.database import Database, migrate
from server.queries import leases, people

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECONDS = timedelta(seconds=1)


def test_migrations_make_exactly_the_tables_of_this_release(database: Database) -> None:
    with database.read() as session:
        context = MigrationContext.configure(
            session.connection(), opts={"compare_type": True}
        )
        assert compare_metadata(context, SQLModel.metadata) == []


def test_migrating_twice_changes_nothing(database_url: str) -> None:
    migrate(database_url)
    migrate(database_url)
    database = Database(database_url)
    assert database.is_current()
    database.close()


def test_services_that_start_at_once_migrate_in_turns(database_url: str) -> None:
    failures: list[BaseException] = []

    def start() -> None:
        try:
            migrate(database_url)
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_empty_database_is_not_current(database_url: str) -> None:
    database = Database(database_url)
    assert not database.is_current()
    database.close()


def test_what_fails_in_a_transaction_leaves_nothing(database: Database) -> None:
    def fail() -> None:
        with database.write() as session:
            people.user_id(session, "alice", NOW)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with database.read() as session:
        assert people.find_user(session, "alice") is None


def test_times_come_back_in_utc(database: Database) -> None:
    with database.write() as session:
        leases.take(session, "one", "me", NOW, SECONDS)
    with database.read() as session:
        assert leases.oldest_expiry(session) == NOW + SECONDS


def test_a_naive_time_is_refused(database: Database) -> None:
    naive = datetime(2026, 3, 1, 12, 0)
    with pytest.raises(Exception, match="no time zone"), database.write() as session:
        leases.take(session, "one", "me", naive, SECONDS)


def test_a_lease_is_held_by_one(database: Database) -> None:
    with database.write() as session:
        assert leases.take(session, "one", "first", NOW, SECONDS)
        assert not leases.take(session, "one", "second", NOW, SECONDS)
        assert leases.take(session, "one", "first", NOW, SECONDS)  # prolonged
        assert leases.take(session, "other", "second", NOW, SECONDS)


def test_a_lease_that_ended_is_free_and_its_holder_knows(database: Database) -> None:
    later = NOW + 2 * SECONDS
    with database.write() as session:
        leases.take(session, "one", "first", NOW, SECONDS)
        assert leases.holds(session, "one", "first", NOW)
        assert not leases.holds(session, "one", "first", later)
        assert leases.take(session, "one", "second", later, SECONDS)
        assert not leases.take(session, "one", "first", later, SECONDS)


def test_a_lease_given_up_is_free_at_once(database: Database) -> None:
    with database.write() as session:
        leases.take(session, "one", "first", NOW, SECONDS)
        leases.give_up(session, "one", "second", NOW)  # not theirs to give
        assert not leases.take(session, "one", "second", NOW, SECONDS)
        leases.give_up(session, "one", "first", NOW)
        assert leases.take(session, "one", "second", NOW, SECONDS)


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/name", "postgresql"])
def test_a_database_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        Database(url)


def test_a_database_that_does_not_answer_is_told_without_its_password() -> None:
    database = Database("postgresql://me:secret@127.0.0.1:1/none")
    with pytest.raises(UnavailableError) as raised:
        database.migrate()
    assert "secret" not in str(raised.value)
    database.close()
