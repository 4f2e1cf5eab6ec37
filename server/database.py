"""The one place that opens the database: engine, transactions, migrations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import resources
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlmodel import Session

from hpcplat.errors import InvalidError, UnavailableError

BUSY_SECONDS: Final = 30.0
WRITE: Final = "hpcplat_write"  # an option of connections: SQLite's "synchronous"
MIGRATION: Final = 0x68706370  # the advisory lock's number: any that is ours alone


class Database:
    """SQLite or PostgreSQL, by URL.

    Readers never wait for writers (WAL, MVCC). On SQLite a write transaction takes
    the lock at its beginning (BEGIN IMMEDIATE), so that it never fails half-way.
    """

    def __init__(self, url: str) -> None:
        self.url = _parse(url)
        self._reading = _engine(self.url)
        self._writing = self._reading.execution_options(**{WRITE: "FULL"})
        self._noting = self._reading.execution_options(**{WRITE: "NORMAL"})
        # SQLite has one writer at a time, and lets those who wait sleep and look again,
        # ever longer. Within this process they are woken as soon as it is their turn.
        self._turn: AbstractContextManager[object] = (
            threading.Lock() if self.is_sqlite else nullcontext()
        )
        self._idle = threading.Condition()
        self._users = 0
        self._closed = False

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a session for reading; what it changes is not kept."""
        with self._use(), Session(self._reading, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Session]:
        """Open a transaction that is committed at the end, or rolled back whole.

        What can be found out again need not be ``durable``: it outlives the process,
        but a power cut may take it (whole, and with it nothing that was written
        before). It costs no wait for the disk.
        """
        engine = self._writing if durable else self._noting
        with (
            self._use(),
            self._turn,
            Session(engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            if not durable and not self.is_sqlite:
                session.execute(text("SET LOCAL synchronous_commit = off"))
            yield session

    def migrate(self) -> None:
        """Bring the tables to this release; raises UnavailableError when it can't."""
        with self._reachable() as connection:
            if _current(connection) == _head():
                return
        with self._writing.begin() as connection:
            if not self.is_sqlite:  # two services that start at once take turns
                connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION})"))
            command.upgrade(_alembic(connection), "head")

    def is_current(self) -> bool:
        """Tell whether the tables are those of this release."""
        with self._reachable() as connection:
            return _current(connection) == _head()

    def close(self, patience: float = 5.0) -> None:
        """Let nobody in any more, wait for those inside, close all connections."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: self._users == 0, patience)
        self._reading.dispose()

    @contextmanager
    def _use(self) -> Iterator[None]:
        with self._idle:
            if self._closed:
                raise UnavailableError("The service is ending.", "Start it again.")
            self._users += 1
        try:
            yield
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()

    @contextmanager
    def _reachable(self) -> Iterator[Connection]:
        try:
            connection = self._reading.connect()
        except OperationalError as error:
            where = self.url.render_as_string(hide_password=True)
            raise UnavailableError(
                f"The database {where} does not answer.",
                "See that it runs, and that its URL is right.",
            ) from error
        with connection:
            yield connection


def migrate(url: str) -> None:
    """Bring a database to this release: what `hpcplat db migrate` runs."""
    database = Database(url)
    try:
        database.migrate()
    finally:
        database.close()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidError(
            "The database URL can't be read.",
            "Write sqlite:////folder/file.db or postgresql://user@host/name.",
        ) from error
    if parsed.get_backend_name() == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        raise InvalidError(
            f"{parsed.get_backend_name()} is not a database that hpcplat knows.",
            "Use SQLite or PostgreSQL.",
        )
    return parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        _make_folder(url)
        engine = create_engine(
            url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False}
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return create_engine(
        url, pool_size=20, max_overflow=20, pool_pre_ping=True, pool_recycle=1800
    )


def _make_folder(url: URL) -> None:
    if url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)


def _prepare_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401
    connection.isolation_level = None  # transactions are begun by _begin_sqlite
    for line in (
        f"busy_timeout = {int(BUSY_SECONDS * 1000)}",
        "journal_mode = WAL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {line}").close()


def _begin_sqlite(connection: Connection) -> None:
    """Begin, and say what a commit waits for: FULL for the disk, NORMAL (of a WAL) not."""
    synchronous = connection.get_execution_options().get(WRITE)
    begin = connection.connection.cursor().execute  # SQLAlchemy's own takes far longer
    if synchronous is None:
        begin("BEGIN")
        return
    begin(f"PRAGMA synchronous = {synchronous}")
    begin("BEGIN IMMEDIATE")


def _alembic(connection: Connection | None = None) -> Config:
    config = Config()
    folder = resources.files("server").joinpath("migrations")
    config.set_main_option("script_location", str(folder))
    config.attributes["connection"] = connection
    return config


def _head() -> str | None:
    return ScriptDirectory.from_config(_alembic()).get_current_head()


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
