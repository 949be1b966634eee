"""The durable log: every session's events and blobs in one database, and all tables made from them."""

from server.store.errors import (
    Backlog,
    DamagedDatabase,
    LeaseLost,
    LogError,
    MissingBlob,
    MissingDriver,
    NetworkFileSystem,
    NewerSchema,
    NotWritable,
    Owner,
    SessionBusy,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownBlob,
    UnknownGeneration,
    UnknownSession,
)
from server.store.reader import SessionRow
from server.store.rules import RuleRow
from server.store.session_log import SessionLog
from server.store.store import Store
from server.store.workspaces import WorkspaceRow

__all__ = [
    "Backlog",
    "DamagedDatabase",
    "LeaseLost",
    "LogError",
    "MissingBlob",
    "MissingDriver",
    "NetworkFileSystem",
    "NewerSchema",
    "NotWritable",
    "Owner",
    "RuleRow",
    "SessionBusy",
    "SessionLog",
    "SessionRow",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "UnknownBlob",
    "UnknownGeneration",
    "UnknownSession",
    "WorkspaceRow",
]
