"""Sessions, their events and blobs, and the projections of them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "workspaces",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("consent", sa.Text, nullable=False, server_default="metrics"),
        sa.Column("retention_days", sa.Integer),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workspaces"),
        sa.UniqueConstraint("path", name="uq_workspaces_path"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("workspace", sa.Text, nullable=False),
        sa.Column("parent_id", sa.Text),
        sa.Column("fork_seq", sa.BigInteger),
        sa.Column("title", sa.Text),
        sa.Column("opening", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("updated", sa.BigInteger, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False, server_default="0"),
        sa.Column("turn_open", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("ended", sa.Text),
        sa.Column("generations", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cost", sa.Float, nullable=False, server_default="0"),
        sa.Column("term", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("owner_host", sa.Text),
        sa.Column("owner_pid", sa.BigInteger),
        sa.Column("owner_started", sa.BigInteger),
        sa.Column("owner_nonce", sa.Text),
        sa.Column("lease_until", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_updated_id", "sessions", ["updated", "id"])
    op.create_index("ix_sessions_workspace_updated", "sessions", ["workspace", "updated"])
    op.create_index("ix_sessions_parent_id", "sessions", ["parent_id"])
    op.create_index("ix_sessions_owner_nonce", "sessions", ["owner_nonce"])
    op.create_table(
        "events",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("v", sa.Integer, nullable=False),
        sa.Column("ts", sa.BigInteger, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary),
        sa.Column("blob", sa.Text),
        sa.Column("refs", sa.Text),
        sa.PrimaryKeyConstraint("session_id", "seq", name="pk_events"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "blobs",
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("codec", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("refs", sa.BigInteger, nullable=False),
        sa.Column("parent", sa.Text),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_blobs"),
    )
    unnamed = sa.text("refs = 0")
    op.create_index("ix_blobs_created", "blobs", ["created"], sqlite_where=unnamed, postgresql_where=unnamed)
    op.create_table(
        "generations",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("ts", sa.BigInteger, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("policy", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("prompt_node", sa.Text),
        sa.Column("prompt_messages", sa.BigInteger),
        sa.Column("prompt_bytes", sa.BigInteger),
        sa.Column("prompt_shared", sa.BigInteger),
        sa.Column("sampling", sa.Text, nullable=False),
        sa.Column("grammar", sa.Boolean, nullable=False),
        sa.Column("finish", sa.Text, nullable=False),
        sa.Column("calls", sa.Integer, nullable=False),
        sa.Column("input", sa.BigInteger),
        sa.Column("cached", sa.BigInteger),
        sa.Column("output", sa.BigInteger),
        sa.Column("reasoning", sa.BigInteger),
        sa.Column("cost", sa.Float),
        sa.Column("token_exact", sa.Boolean, nullable=False),
        sa.Column("started", sa.BigInteger),
        sa.Column("first_token", sa.BigInteger),
        sa.Column("ended", sa.BigInteger),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "seq", name="pk_generations"),
    )
    op.create_index("ix_generations_id", "generations", ["id"])
    op.create_index("ix_generations_model_ts", "generations", ["model", "ts"])
    op.create_table(
        "approvals",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("call_id", sa.Text),
        sa.Column("title", sa.Text),
        sa.Column("kind", sa.Text),
        sa.Column("requested_seq", sa.BigInteger),
        sa.Column("requested", sa.BigInteger),
        sa.Column("resolved_seq", sa.BigInteger),
        sa.Column("resolved", sa.BigInteger),
        sa.Column("outcome", sa.Text),
        sa.Column("option", sa.Text),
        sa.Column("by", sa.Text),
        sa.Column("rule", sa.Text),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("session_id", "request_id", name="pk_approvals"),
    )
    op.create_table(
        "feedback",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("ts", sa.BigInteger, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text),
        sa.Column("target", sa.Text),
        sa.Column("comment", sa.Text),
        sa.PrimaryKeyConstraint("session_id", "seq", name="pk_feedback"),
    )
    op.create_table(
        "snapshots",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("ts", sa.BigInteger, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("snapshot", sa.Text),
        sa.Column("label", sa.Text),
        sa.PrimaryKeyConstraint("session_id", "seq", name="pk_snapshots"),
    )
    if op.get_bind().dialect.name == "postgresql":
        # The content is compressed already; a second try costs time and gains nothing.
        op.execute("ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL")
