"""The agent's own questions, put as a form where a client has forms, else as options to choose from."""

from typing import TYPE_CHECKING, Any

from ulid import ULID

from server.acp.connection import Connection
from server.acp.permissions import chosen
from server.acp.questions import Asked
from tools.ask import Answer, Question

if TYPE_CHECKING:
    from server.live import LiveSession

_DISMISS = "dismiss"


async def ask_user(live: "LiveSession", question: Question) -> Answer:
    """The first answer of any client."""
    id = str(ULID())
    asked = Asked(
        id=id,
        request=lambda connection: _request(live, id, question, connection),
        read=lambda answer, connection: _answer(question, answer, connection),
        nobody=lambda why, by: Answer(None, by, why),
        withdrawn=Answer(None, "turn", "the turn was cancelled"),
        settled=lambda answer: {
            "outcome": "answered" if answer.text is not None else "dismissed",
            "by": answer.by,
        },
    )
    return await live.questions.put(asked)


def _has_forms(connection: Connection) -> bool:
    forms = connection.capabilities.get("elicitation")
    return isinstance(forms, dict) and isinstance(forms.get("form"), dict)


def _request(
    live: "LiveSession", id: str, question: Question, connection: Connection
) -> tuple[str, dict[str, Any]] | None:
    meta = {"etude": {"requestId": id}}
    if _has_forms(connection):
        properties: dict[str, Any] = {"answer": {"type": "string", "title": "Answer"}}
        required = ["answer"]
        if question.options:
            choice = {"type": "string", "title": "Choose", "enum": list(question.options)}
            properties, required = {"choice": choice, "answer": {"type": "string", "title": "Or say"}}, []
        schema = {"type": "object", "properties": properties, "required": required}
        form = {"mode": "form", "sessionId": live.id, "message": question.text, "requestedSchema": schema}
        return "elicitation/create", {**form, "_meta": meta}
    if not question.options:
        return None
    options = [
        {"optionId": f"option-{number}", "name": name, "kind": "allow_once"}
        for number, name in enumerate(question.options, 1)
    ]
    call = {"toolCallId": id, "title": question.text, "kind": "other", "status": "pending"}
    dismiss = {"optionId": _DISMISS, "name": "None of these", "kind": "reject_once"}
    return (
        "session/request_permission",
        {"sessionId": live.id, "toolCall": call, "options": [*options, dismiss], "_meta": meta},
    )


def _answer(question: Question, answer: Any, connection: Connection) -> Answer:
    """A client's answer. Raises `ValueError` if it is none."""
    if not _has_forms(connection):
        names = {f"option-{number}": name for number, name in enumerate(question.options, 1)}
        option = chosen(answer, {**names, _DISMISS: ""}, connection)
        dismissed = option in (None, _DISMISS)
        return Answer(None if dismissed or option is None else names[option], connection.name, "dismissed")
    action = answer.get("action") if isinstance(answer, dict) else None
    if action in ("decline", "cancel"):
        return Answer(None, connection.name, "declined" if action == "decline" else "dismissed")
    content = answer.get("content") if action == "accept" else None
    if not isinstance(content, dict):
        raise ValueError(f"expected accept with content, decline or cancel, got {str(answer)[:200]}")
    said = [content.get("choice"), content.get("answer")]
    words = [word.strip() for word in said if isinstance(word, str) and word.strip()]
    if not words:
        return Answer(None, connection.name, "an empty answer")
    return Answer(": ".join(words), connection.name)
