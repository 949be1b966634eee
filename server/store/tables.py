"""All tables. `events` and `blobs` are the log; the others are projections of it (`projections`).

Times are integer microseconds UTC, ids are ULIDs, hashes are those of `tools.workspace.content_hash`.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

workspaces = Table(
    "workspaces",
    metadata,
    Column("id", Text, primary_key=True),
    Column("path", Text, nullable=False, unique=True),
    # none < metrics < eval < train < publish: what may be done with what is logged here.
    Column("consent", Text, nullable=False, server_default="metrics"),
    Column("retention_days", Integer),
    Column("created", BigInteger, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("workspace_id", Text, nullable=False),
    Column("workspace", Text, nullable=False),
    # Where reading goes on below this session's own events.
    Column("parent_id", Text),
    Column("fork_seq", BigInteger),
    Column("title", Text),
    # The start of the first prompt: what a list shows for a session without a title.
    Column("opening", Text),
    Column("model", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("turn", Integer, nullable=False, server_default="0"),
    # A turn has started and not ended; nobody may be running it any more (see the lease).
    Column("turn_open", Boolean, nullable=False, server_default=false()),
    Column("ended", Text),
    Column("generations", Integer, nullable=False, server_default="0"),
    Column("cost", Float, nullable=False, server_default="0"),
    # The lease: state of running processes, not of the log.
    Column("term", BigInteger, nullable=False, server_default="0"),
    Column("owner_host", Text),
    Column("owner_pid", BigInteger),
    Column("owner_started", BigInteger),
    Column("owner_nonce", Text),
    Column("lease_until", BigInteger),
    Index(None, "updated", "id"),
    Index(None, "workspace", "updated"),
    Index(None, "parent_id"),
    Index(None, "owner_nonce"),
)

events = Table(
    "events",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("v", Integer, nullable=False),
    Column("ts", BigInteger, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    # The data as JSON, here or, where it is long, in a blob.
    Column("payload", LargeBinary),
    Column("blob", Text),
    # Hashes of the blobs that the data names, separated by spaces: each counts one reference.
    Column("refs", Text),
    sqlite_with_rowid=False,
)

blobs = Table(
    "blobs",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("codec", Text, nullable=False),
    # Bytes of the content, before compression.
    Column("size", BigInteger, nullable=False),
    # References from events and from the nodes of prompts; at 0 the row goes.
    Column("refs", BigInteger, nullable=False),
    # For the node of a prompt: the node that it continues.
    Column("parent", Text),
    Column("created", BigInteger, nullable=False),
    # Last, so that reading the columns before it does not touch the content's pages.
    Column("data", LargeBinary, nullable=False),
    Index(None, "created", sqlite_where=text("refs = 0"), postgresql_where=text("refs = 0")),
)

generations = Table(
    "generations",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("ts", BigInteger, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("policy", Text),
    Column("request_id", Text),
    Column("prompt_node", Text),
    Column("prompt_messages", BigInteger),
    Column("prompt_bytes", BigInteger),
    Column("prompt_shared", BigInteger),
    Column("sampling", Text, nullable=False),
    Column("grammar", Boolean, nullable=False),
    Column("finish", Text, nullable=False),
    Column("calls", Integer, nullable=False),
    # Tokens as reported; null where they were not.
    Column("input", BigInteger),
    Column("cached", BigInteger),
    Column("output", BigInteger),
    Column("reasoning", BigInteger),
    Column("cost", Float),
    # Whether sampled ids and their log-probs are in the log, so that they can be trained on.
    Column("token_exact", Boolean, nullable=False),
    Column("started", BigInteger),
    Column("first_token", BigInteger),
    Column("ended", BigInteger),
    Column("retries", Integer, nullable=False),
    Index(None, "id"),
    Index(None, "model", "ts"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("request_id", Text, primary_key=True),
    Column("call_id", Text),
    Column("title", Text),
    Column("kind", Text),
    Column("requested_seq", BigInteger),
    Column("requested", BigInteger),
    Column("resolved_seq", BigInteger),
    Column("resolved", BigInteger),
    Column("outcome", Text),
    Column("option", Text),
    Column("by", Text),
    Column("rule", Text),
    Column("reason", Text),
)

rules = Table(
    "rules",
    metadata,
    # Rules that this session's log holds; whose they are and where they count is in the session's row.
    Column("session_id", Text, primary_key=True),
    Column("rule", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("ts", BigInteger, nullable=False),
    Index(None, "rule"),
)

feedback = Table(
    "feedback",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("ts", BigInteger, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("kind", Text),
    Column("target", Text),
    Column("comment", Text),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("ts", BigInteger, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    # The handle under which `tools.snapshots` keeps the files.
    Column("snapshot", Text),
    Column("label", Text),
)
