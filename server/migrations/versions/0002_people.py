"""Workspaces as a tree, quotas, scoped tokens, and who did what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of this revision."""
    op.add_column(
        "workspace",
        sa.Column("parent", sa.String(length=255), nullable=False, server_default=""),
    )
    op.add_column(
        "workspace", sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.add_column(
        "token",
        sa.Column(
            "scopes",
            sa.String(length=255),
            nullable=False,
            server_default="read write manage",
        ),
    )
    op.create_table(
        "quota",
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("set_by", sa.String(length=255), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspace.id"]),
        sa.PrimaryKeyConstraint("workspace_id", "user"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("source", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("workspace", sa.String(length=255), nullable=False),
        sa.Column("is_refusal", sa.Boolean(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_workspace", "audit", ["workspace"])


def downgrade() -> None:
    """Return to the tables before."""
    op.drop_index("ix_audit_workspace", "audit")
    op.drop_index("ix_audit_at", "audit")
    op.drop_table("audit")
    op.drop_table("quota")
    op.drop_column("token", "scopes")
    op.drop_column("workspace", "closed_at")
    op.drop_column("workspace", "parent")
