"""Run migrations over the connection that server.database hands in."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

import server.tables  # noqa: F401 - fills the metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_as_batch=True,  # SQLite can't alter a column in place
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
