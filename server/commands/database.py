"""The store, for commands that work without a server."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from server.failure import CommandFailed

if TYPE_CHECKING:
    from server.store import Store

T = TypeVar("T")


def with_store(db: str | None, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Open the database (`db`, else the configured one), do the work, close it.

    Raises `CommandFailed` with the store's own words.
    """
    from server.settings import Settings
    from server.store import Store, StoreError

    url = Settings.load({"store.url": db}, os.environ, None).store.url

    async def opened() -> T:
        store = await Store.open(url)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(opened())
    except StoreError as error:
        raise CommandFailed(str(error)) from error
