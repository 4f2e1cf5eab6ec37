"""Find events of a kind without reading all: dead nodes are asked for every second."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index."""
    op.create_index("ix_event_kind", "event", ["kind", "at"], unique=False)


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("ix_event_kind", "event")
