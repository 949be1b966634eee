"""Approval requests as questions to people: `session/request_permission`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.approval import Decision
from agent.events import ApprovalRequested
from server.acp.connection import Connection
from server.acp.diffs import text_diff
from server.acp.questions import Asked

if TYPE_CHECKING:
    from server.live import LiveSession


async def ask_permission(live: "LiveSession", request: ApprovalRequested) -> Decision:
    """The first decision of any client."""
    params = _params(live, request)
    asked = Asked(
        id=request.request_id,
        request=lambda connection: ("session/request_permission", params),
        read=lambda answer, connection: _decision(request, answer, connection),
        nobody=lambda why, by: Decision("denied", by=by, reason=why),
        withdrawn=Decision("cancelled", by="turn", reason="the turn was cancelled"),
        settled=_settled,
    )
    return await live.questions.put(asked)


def chosen(answer: Any, options: Mapping[str, str], connection: Connection) -> str | None:
    """The id of the option a client chose; None where the question was dismissed.

    Raises:
        ValueError: it is no answer to a permission request with these options.
    """
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    if isinstance(outcome, dict) and outcome.get("outcome") == "cancelled":
        return None
    option = outcome.get("optionId") if isinstance(outcome, dict) else None
    if not isinstance(option, str) or option not in options:
        raise ValueError(f"expected one of the options {sorted(options)}, got {str(answer)[:200]}")
    return option


def _settled(decision: Decision) -> dict[str, Any]:
    return {"outcome": decision.outcome, "optionId": decision.option, "by": decision.by}


def _decision(request: ApprovalRequested, answer: Any, connection: Connection) -> Decision:
    kinds = {item["optionId"]: item["kind"] for item in request.options}
    option = chosen(answer, kinds, connection)
    if option is None:
        return Decision("cancelled", by=connection.name, reason="the user dismissed the question")
    allowed = kinds[option].startswith("allow")
    return Decision("allowed" if allowed else "denied", option=option, by=connection.name)


def _params(live: "LiveSession", request: ApprovalRequested) -> dict[str, Any]:
    diffs = [text_diff(live.path(item["path"]), item.get("old"), item.get("new")) for item in request.diffs]
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
    mark: dict[str, Any] = {"requestId": request.request_id}
    if request.reason is not None:
        mark["reason"] = request.reason
    if request.parts:
        mark["parts"] = request.parts
    return {
        "sessionId": live.id,
        "toolCall": call,
        "options": request.options,
        "_meta": {"etude": mark},
    }
