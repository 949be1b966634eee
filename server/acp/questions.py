"""Questions to people: put to every attached client that can ask, answered once."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from server.acp.connection import METHOD_NOT_FOUND, Connection, RpcError

if TYPE_CHECKING:
    from server.acp.subscriber import Subscriber
    from server.live import LiveSession

log = logging.getLogger(__name__)

UNATTENDED_S = 600.0
"""How long a question waits while no client is attached that could put it."""
ERROR_SHOWN = 300
"""Characters of a client's own error that the model is told."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """One question. `request` gives method and parameters for a client, None where it cannot ask this.

    `read` makes an answer of what a client sends (`ValueError`: it is none); `nobody` where none came, with
    the reason and who gave it; `withdrawn` where the turn was cancelled; `settled` tells the others.
    """

    id: str
    request: Callable[[Connection], tuple[str, dict[str, Any]] | None]
    read: Callable[[Any, Connection], T]
    nobody: Callable[[str, str], T]
    withdrawn: T
    settled: Callable[[T], dict[str, Any]]


@dataclass(eq=False, slots=True)
class _Pending(Generic[T]):
    asked: Asked[T]
    answer: "asyncio.Future[T]"
    tasks: dict[Connection, "asyncio.Task[None]"] = field(default_factory=dict)
    unable: set[Connection] = field(default_factory=set)


class Questions:
    """The open questions of one session."""

    def __init__(self, live: "LiveSession") -> None:
        self.live = live
        self._pending: dict[str, _Pending[Any]] = {}

    @property
    def open(self) -> list[str]:
        return list(self._pending)

    async def put(self, asked: Asked[T]) -> T:
        """The first answer of any client. Cancelling withdraws the question everywhere."""
        pending: _Pending[T] = _Pending(asked, asyncio.get_running_loop().create_future())
        self._pending[asked.id] = pending
        answer = asked.withdrawn
        try:
            for subscriber in self.live.subscribers.values():
                self._put(pending, subscriber)
            self._give_up(pending, "no client of this session can put such a question", "client")
            answer = await self._answered(pending)
            return answer
        finally:
            del self._pending[asked.id]
            self._withdraw(pending, answer)

    def offer(self, subscriber: "Subscriber") -> None:
        """Put every open question to a client that has just attached."""
        for pending in self._pending.values():
            self._put(pending, subscriber)

    def leave(self, connection: Connection) -> None:
        """A client is gone; its open questions go with it."""
        for pending in self._pending.values():
            if (task := pending.tasks.pop(connection, None)) is not None:
                task.cancel()

    async def _answered(self, pending: _Pending[T]) -> T:
        unattended = 0.0
        while True:
            done, _ = await asyncio.wait({pending.answer}, timeout=1.0)
            if done:
                return pending.answer.result()
            unattended = 0.0 if pending.tasks else unattended + 1.0
            if unattended >= UNATTENDED_S:
                return pending.asked.nobody(f"no client answered within {UNATTENDED_S:.0f} s", "headless")

    def _put(self, pending: _Pending[T], subscriber: "Subscriber") -> None:
        connection = subscriber.connection
        if subscriber.catching or subscriber.ended or connection in pending.tasks:
            return
        if connection in pending.unable:
            return
        request = pending.asked.request(connection)
        if request is None:
            pending.unable.add(connection)
            return
        task = asyncio.get_running_loop().create_task(self._ask(pending, connection, *request))
        pending.tasks[connection] = task

    async def _ask(
        self, pending: _Pending[T], connection: Connection, method: str, params: dict[str, Any]
    ) -> None:
        try:
            answer = pending.asked.read(await connection.request(method, params), connection)
        except ConnectionError:
            pending.tasks.pop(connection, None)
            return
        except (RpcError, ValueError) as error:
            pending.tasks.pop(connection, None)
            pending.unable.add(connection)
            missing = isinstance(error, RpcError) and error.code == METHOD_NOT_FOUND
            log.warning("%s cannot answer a question: %.500s", connection.name, error)
            why = (
                "the client cannot ask its user"
                if missing
                else f"the client failed to answer: {str(error)[:ERROR_SHOWN]}"
            )
            self._give_up(pending, why, connection.name)
            return
        if not pending.answer.done():
            pending.tasks.pop(connection, None)
            pending.answer.set_result(answer)

    def _give_up(self, pending: _Pending[T], why: str, by: str) -> None:
        """Where every attached client turned out unable to ask, nobody is waited for."""
        subscribers = set(self.live.subscribers)
        if subscribers and not subscribers - pending.unable and not pending.answer.done():
            pending.answer.set_result(pending.asked.nobody(why, by))

    def _withdraw(self, pending: _Pending[T], answer: T) -> None:
        for task in pending.tasks.values():
            task.cancel()  # sends `$/cancel_request` to whoever has not answered
        settled = {
            "sessionId": self.live.id,
            "requestId": pending.asked.id,
            **pending.asked.settled(answer),
        }
        for subscriber in self.live.subscribers.values():
            if subscriber.extended:
                subscriber.connection.notify("_etude/permission_resolved", settled)
