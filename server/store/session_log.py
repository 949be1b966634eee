"""The log of one session, as its holder sees it."""

import asyncio
from typing import Protocol

from agent.events import Draft, Event
from server.store.errors import LogError


class Keeper(Protocol):
    """What a session's log needs of the store."""

    def submit(self, session_id: str, term: int, draft: Draft) -> "asyncio.Future[Event]": ...

    async def blob_chain(self, hash: str) -> dict[str, bytes]: ...

    async def let_go(self, session_id: str, term: int) -> None: ...


class SessionLog:
    """An `agent.log.Log` that is kept in the database, for as long as its lease (`term`) lasts."""

    def __init__(self, keeper: Keeper, session_id: str, term: int) -> None:
        self._keeper, self._session_id, self._term = keeper, session_id, term
        self._last: asyncio.Future[Event] | None = None
        self._released = False
        self._ahead: dict[str, bytes] = {}

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def term(self) -> int:
        return self._term

    def submit(self, draft: Draft) -> "asyncio.Future[Event]":
        """Queue a draft; the order of calls is the order of the log.

        The future gives the event once it is durable, or raises why it is not (`LeaseLost`, `StoreFull`,
        another `LogError`). Cancelling it does not take the draft back.

        Raises:
            Backlog: far more is waiting than the database takes.
            LogError: the data has no JSON form, or the log was released.
        """
        if self._released:
            raise LogError(f"session {self._session_id} was released; lease it again to record more")
        self._last = self._keeper.submit(self._session_id, self._term, draft)
        return self._last

    async def blob(self, hash: str) -> bytes:
        """The content of a stored blob. Raises `KeyError` if there is none.

        The nodes of a prompt are asked for one after the other, each naming the next: all are read with the
        first and kept until they are asked for.
        """
        content = self._ahead.pop(hash, None)
        if content is None:
            self._ahead = await self._keeper.blob_chain(hash)
            content = self._ahead.pop(hash)
        return content

    async def release(self) -> None:
        """Wait for what was submitted, then let others hold the session. Doing it twice is harmless."""
        if self._released:
            return
        self._released = True
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])
        await self._keeper.let_go(self._session_id, self._term)
