"""A self-summary on the wire: in ACP's own form for clients that show it, else a finished call."""

from typing import Any

from server.acp.connection import Connection

Dict = dict[str, Any]

LEFT_OUT = "The model wrote no summary that could be taken: older steps were left out of its context."


def shows_compaction(connection: Connection) -> bool:
    """Whether the client announced `session.compaction`."""
    session = connection.capabilities.get("session")
    return isinstance(session, dict) and session.get("compaction") is not None


def compaction_update(data: Dict, seq: int) -> Dict:
    """The `session/update` of a `summary` event."""
    return {
        "sessionUpdate": "compaction_update",
        "compactionId": f"summary-{seq}",
        "status": "completed",
        "summary": [{"type": "text", "text": _text(data)}],
        "_meta": {"etude": _facts(data)},
    }


def think_call(data: Dict, seq: int) -> Dict:
    """The same for a client without compaction."""
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": f"summary-{seq}",
        "title": _title(data),
        "kind": "think",
        "status": "completed",
        "content": [{"type": "content", "content": {"type": "text", "text": _text(data)}}],
        "rawOutput": _facts(data),
    }


def _title(data: Dict) -> str:
    """One line: what happened and how much it gained."""
    what = "Older steps were left out" if data.get("fallback") else "Earlier messages were summarised"
    return f"{what}: about {data['tokens_before']:,} tokens became {data['tokens_after']:,}"


def _text(data: Dict) -> str:
    return data.get("text") or LEFT_OUT


def _facts(data: Dict) -> Dict:
    return {
        "title": _title(data),
        "trigger": data["trigger"],
        "segment": data["segment"],
        "number": data["number"],
        "tokensBefore": data["tokens_before"],
        "tokensAfter": data["tokens_after"],
        "fallback": data.get("fallback", False),
        "refused": len(data.get("refused", [])),
    }
