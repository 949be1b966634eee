"""What differs between the databases, as the rest of the store sees it."""

from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DBAPIError

from server.store.errors import StoreError


class Backend(Protocol):
    """One kind of database. `writer` has exactly one connection, `reader` a few."""

    name: str
    writer: Engine
    reader: Engine

    def before(self, connection: Connection, barrier: bool) -> None:
        """Called outside a writing transaction: with a barrier its commit survives a loss of power."""
        ...

    def begun(self, connection: Connection, barrier: bool) -> None:
        """Called first inside a writing transaction."""
        ...

    def insert(self, table: Table) -> Any:
        """An INSERT that knows ON CONFLICT."""
        ...

    def clock(self, connection: Connection) -> int:
        """Microseconds UTC of a clock that all users of the database share."""
        ...

    def tidy(self, connection: Connection) -> None:
        """Cheap upkeep, in a writing transaction."""
        ...

    def shrink(self, connection: Connection) -> int:
        """Give some unused room back, in a writing transaction; returns its bytes, 0 for no more."""
        ...

    def translate(self, error: DBAPIError) -> StoreError | None:
        """The error as one of ours; None if it is a defect of ours or bad data."""
        ...
