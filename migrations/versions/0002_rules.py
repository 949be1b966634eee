"""Rules by which calls run unasked: a projection of approvals and revocations."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rules",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("ts", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "rule", name="pk_rules"),
    )
    op.create_index("ix_rules_rule", "rules", ["rule"])
