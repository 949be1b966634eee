"""Errors of the store. Each says what happened, what was expected and what to do.

Those that are `LogError`s too can also reach whoever waits for a submitted event.
"""

from dataclasses import dataclass

from agent.log import LeaseLost, LogError

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
    "SessionBusy",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "UnknownBlob",
    "UnknownGeneration",
    "UnknownSession",
]


class StoreError(Exception):
    """The store could not do what was asked; nothing of it was stored."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a session. `started` tells it from a later process with the same pid."""

    host: str
    pid: int
    started: int
    nonce: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"


class UnknownSession(StoreError, LookupError):
    """There is no session of this id."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"there is no session {session_id}; `etude sessions list` shows those there are")
        self.session_id = session_id


class UnknownGeneration(StoreError):
    """There is no generation of this id."""


class UnknownBlob(StoreError, KeyError):
    """There is no blob of this hash."""

    def __str__(self) -> str:
        return str(self.args[0])


class SessionBusy(StoreError):
    """A live process holds the session."""

    def __init__(self, session_id: str, owner: Owner) -> None:
        super().__init__(
            f"session {session_id} is open in {owner}; close it there, or attach to that server instead"
        )
        self.session_id, self.owner = session_id, owner


class NewerSchema(StoreError):
    """The database was written by a newer Etude."""


class NetworkFileSystem(StoreError):
    """SQLite's write-ahead log cannot work where this file lies."""


class MissingDriver(StoreError):
    """The package that talks to this kind of database is not installed."""


class DamagedDatabase(StoreError, LogError):
    """The file is not a database, or its content is broken."""


class NotWritable(StoreError, LogError):
    """The database may not be written by this process."""


class StoreFull(StoreError, LogError):
    """No space is left where the database lies."""


class StoreBusy(StoreError, LogError):
    """Other processes held the database for too long."""


class StoreUnavailable(StoreError, LogError):
    """The database server cannot be reached, or ended the connection."""


class Backlog(StoreError, LogError):
    """More is submitted than the database takes; wait for what was submitted before submitting more."""


class MissingBlob(StoreError, LogError):
    """An event names content that is neither stored nor handed in with it, or not under its true hash."""
