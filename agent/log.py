"""Where a session's events go: the log protocol, and a log in memory for in-process use."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from agent.events import Draft, Event


class LogError(Exception):
    """The log could not store an event; nothing of it is visible to anyone."""


class LeaseLost(LogError):
    """Another process owns the session now (a higher `term`)."""


class Log(Protocol):
    """The append-only log of one session, as its single writer sees it.

    `submit` is synchronous: the order of calls is the order of the log. The future resolves to the
    stored event once it is durable, in order; it raises `LogError` when it could not be stored.
    """

    @property
    def session_id(self) -> str: ...

    @property
    def term(self) -> int: ...

    def submit(self, draft: Draft) -> "asyncio.Future[Event]": ...

    async def blob(self, hash: str) -> bytes:
        """The bytes of a blob. Raises `KeyError` if there is none."""
        ...


class MemoryLog:
    """A log that lives as long as its process: for scripts and in-process use."""

    def __init__(self, session_id: str, events: Sequence[Event] = ()) -> None:
        self.session_id = session_id
        self.term = 1
        self.events: list[Event] = list(events)
        self.blobs: dict[str, bytes] = {}

    def submit(self, draft: Draft) -> "asyncio.Future[Event]":
        event = Event(
            session_id=self.session_id,
            seq=len(self.events) + 1,
            ts=draft.ts,
            turn=draft.turn,
            step=draft.step,
            type=draft.type,
            data=draft.data,
        )
        self.events.append(event)
        self.blobs.update(draft.blobs)
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        future.set_result(event)
        return future

    async def blob(self, hash: str) -> bytes:
        return self.blobs[hash]
