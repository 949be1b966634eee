"""Approval requests: put to every attached client, answered once."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.approval import Decision
from agent.events import ApprovalRequested
from server.acp.connection import METHOD_NOT_FOUND, Connection, RpcError
from server.acp.diffs import text_diff

if TYPE_CHECKING:
    from server.acp.subscriber import Subscriber
    from server.live import LiveSession

log = logging.getLogger(__name__)

UNATTENDED_S = 600.0
"""How long a request waits while no client is attached; then it is denied."""


@dataclass(eq=False, slots=True)
class _Pending:
    request: ApprovalRequested
    params: dict[str, Any]
    decision: "asyncio.Future[Decision]"
    asked: dict[Connection, "asyncio.Task[None]"] = field(default_factory=dict)
    unable: set[Connection] = field(default_factory=set)


class Permissions:
    """The open requests of one session."""

    def __init__(self, live: "LiveSession") -> None:
        self.live = live
        self._pending: dict[str, _Pending] = {}

    @property
    def open_requests(self) -> list[str]:
        return list(self._pending)

    async def ask(self, request: ApprovalRequested) -> Decision:
        """The first answer of any client. Cancelling withdraws the question everywhere."""
        pending = _Pending(request, self._params(request), asyncio.get_running_loop().create_future())
        self._pending[request.request_id] = pending
        decision = Decision("cancelled", by="turn", reason="the turn was cancelled")
        try:
            for subscriber in self.live.subscribers.values():
                self._put(pending, subscriber)
            decision = await self._decided(pending)
            return decision
        finally:
            del self._pending[request.request_id]
            self._withdraw(pending, decision)

    def offer(self, subscriber: "Subscriber") -> None:
        """Put every open question to a client that has just attached."""
        for pending in self._pending.values():
            self._put(pending, subscriber)

    def leave(self, connection: Connection) -> None:
        """A client is gone; its open questions go with it."""
        for pending in self._pending.values():
            if (task := pending.asked.pop(connection, None)) is not None:
                task.cancel()

    async def _decided(self, pending: _Pending) -> Decision:
        unattended = 0.0
        while True:
            done, _ = await asyncio.wait({pending.decision}, timeout=1.0)
            if done:
                return pending.decision.result()
            unattended = 0.0 if pending.asked else unattended + 1.0
            if unattended >= UNATTENDED_S:
                reason = f"no client answered within {UNATTENDED_S:.0f} s"
                return Decision("denied", by="headless", reason=reason)

    def _put(self, pending: _Pending, subscriber: "Subscriber") -> None:
        connection = subscriber.connection
        if subscriber.catching or subscriber.ended or connection in pending.asked:
            return
        if connection not in pending.unable:
            task = asyncio.get_running_loop().create_task(self._question(pending, connection))
            pending.asked[connection] = task

    async def _question(self, pending: _Pending, connection: Connection) -> None:
        try:
            answer = await connection.request("session/request_permission", pending.params)
            decision = _decision(pending.request, answer, connection)
        except ConnectionError:
            pending.asked.pop(connection, None)
            return
        except (RpcError, ValueError) as error:
            pending.asked.pop(connection, None)
            pending.unable.add(connection)
            missing = isinstance(error, RpcError) and error.code == METHOD_NOT_FOUND
            log.warning("%s cannot answer an approval: %s", connection.name, error)
            others = set(self.live.subscribers) - pending.unable
            if not others and not pending.decision.done():
                why = "the client cannot ask its user" if missing else f"the client failed to answer: {error}"
                pending.decision.set_result(Decision("denied", by=connection.name, reason=why))
            return
        if not pending.decision.done():
            pending.asked.pop(connection, None)
            pending.decision.set_result(decision)

    def _withdraw(self, pending: _Pending, decision: Decision) -> None:
        for task in pending.asked.values():
            task.cancel()  # sends `$/cancel_request` to whoever has not answered
        resolved = {
            "sessionId": self.live.id,
            "requestId": pending.request.request_id,
            "outcome": decision.outcome,
            "optionId": decision.option,
            "by": decision.by,
        }
        for subscriber in self.live.subscribers.values():
            if subscriber.extended:
                subscriber.connection.notify("_etude/permission_resolved", resolved)

    def _params(self, request: ApprovalRequested) -> dict[str, Any]:
        diffs = [
            text_diff(self.live.path(item["path"]), item.get("old"), item.get("new"))
            for item in request.diffs
        ]
        call: dict[str, Any] = {
            "toolCallId": request.call_id,
            "title": request.title,
            "kind": request.kind,
            "status": "pending",
        }
        if content := [item for item in diffs if item is not None]:
            call["content"] = content
            call["locations"] = [{"path": item["path"]} for item in content]
        if request.command is not None:
            call["rawInput"] = {"command": request.command}
        return {
            "sessionId": self.live.id,
            "toolCall": call,
            "options": request.options,
            "_meta": {"etude": {"requestId": request.request_id}},
        }


def _decision(request: ApprovalRequested, answer: Any, connection: Connection) -> Decision:
    """A client's answer. Raises `ValueError` if it is none."""
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    if isinstance(outcome, dict) and outcome.get("outcome") == "cancelled":
        return Decision("cancelled", by=connection.name, reason="the user dismissed the question")
    option = outcome.get("optionId") if isinstance(outcome, dict) else None
    kinds = {item["optionId"]: item["kind"] for item in request.options}
    if not isinstance(option, str) or option not in kinds:
        raise ValueError(f"expected one of the options {sorted(kinds)}, got {str(answer)[:200]}")
    allowed = kinds[option].startswith("allow")
    return Decision("allowed" if allowed else "denied", option=option, by=connection.name)
