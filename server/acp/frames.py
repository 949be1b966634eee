"""From events of the log to frames on the wire: a fold, the same for live events and for a replay."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from agent.events import Event, Live
from agent.state import title_of
from server.acp.compaction import compaction_update, think_call
from server.acp.connection import notification
from server.acp.diffs import diff_content
from server.acp.options import config_options
from server.wire import to_json

OUTPUT_TAIL = 8192
"""Characters of a running call's output that a plain client is shown (its updates replace each other)."""
CALL_SMALL, CALL_WHOLE = 64 << 10, 1 << 20
"""Characters of one call's diffs up to which each comes at once, and from which on files are shown by what
changed in them."""
DATA_LIMIT = 4096
"""Bytes of an event's data that travel with `_etude/event`; the rest is read over REST."""

ReadBlob = Callable[[str], Awaitable[bytes]]
Dict = dict[str, Any]

_CHUNKS = {"text": "agent_message_chunk", "thought": "agent_thought_chunk"}
_STATUS = {"pending": "pending", "in_progress": "in_progress", "completed": "completed"}
_LEFT_OUT = {
    "turn.started": ("system", "tools"),
    "approval.requested": ("diffs",),
    "session.created": ("harness",),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One frame of an event: as clients that know our extensions get it, and as plain ones do."""

    extended: str | None
    plain: str | None
    kind: str = ""
    """The kind of `session/update`, or empty."""
    compaction: str | None = None
    """Instead of the others, for clients that show compactions."""


@dataclass(slots=True)
class _Call:
    name: str = ""
    diffs: list[Dict] = field(default_factory=list)
    size: int = 0
    """Characters of its diffs."""
    sent: tuple[int, int] = (0, 0)
    """How many of its diffs, and how many characters, the last update held."""
    output: str = ""

    def add(self, item: Dict) -> bool:
        """Take up a diff; whether all of them are to be sent now. Each update replaces the one before, so
        that sending them all with each of many files would take quadratic room."""
        self.diffs.append(item)
        self.size += sum(len(item.get(side) or "") for side in ("oldText", "newText"))
        now = self.size <= CALL_SMALL or self.size >= 2 * self.sent[1]
        if now:
            self.sent = len(self.diffs), self.size
        return now


@dataclass(slots=True)
class Presenter:
    """The fold. `root` is the workspace; `window` gives the context size of a model, 0 = unknown.

    `from_start` says that the fold saw (or was given) everything before its first event, so that sums
    over the session are right.
    """

    session_id: str
    root: str
    read_blob: ReadBlob
    window: Callable[[str], int]
    models: Callable[[], list[str]]
    mode: str = "ask"
    model: str = ""
    title: str | None = None
    cost: float | None = None
    from_start: bool = False
    calls: dict[str, _Call] = field(default_factory=dict)

    def needs_blobs(self, event: Event) -> bool:
        """Whether showing this event means reading from the store."""
        return event.type == "edit"

    async def show(self, event: Event, term: int) -> list[Shown]:
        """The frames of one event, and the fold after it."""
        if event.type == "edit":
            return [self._mark(event, term, [await self._edit(event)])[0]]
        return self.show_now(event, term)

    def show_now(self, event: Event, term: int) -> list[Shown]:
        """`show` for every event that does not need blobs."""
        handler = _HANDLERS.get(event.type)
        updates = handler(self, event, event.data) if handler is not None else []
        if not updates:
            return [Shown(self._event(event, term), None)]
        return self._mark(event, term, updates)

    def chunk(self, event: Event, term: int, start: int = 0) -> str:
        """A stored piece of a message, without its first `start` characters."""
        data = event.data
        message_id, offset, text = data["messageId"], data["offset"] + start, data["text"][start:]
        meta = {**_meta(event, term), "messageId": message_id, "offset": offset}
        return _update(self.session_id, _chunk(event.type, message_id, text), meta)

    # ---- one handler for each type that has a form in ACP

    def _prompt(self, event: Event, data: Dict) -> list[Dict]:
        blocks = data.get("blocks") or [{"type": "text", "text": data["text"]}]
        messages = [
            {"sessionUpdate": "user_message_chunk", "content": block, "messageId": data["message_id"]}
            for block in blocks
        ]
        if event.type == "prompt" and event.turn == 1 and not self.title:
            self.title = title_of(data["text"])
            updated = datetime.fromtimestamp(event.ts / 1e6, UTC).isoformat()
            messages.append(
                {"sessionUpdate": "session_info_update", "title": self.title, "updatedAt": updated}
            )
        return messages

    def _created(self, event: Event, data: Dict) -> list[Dict]:
        self.mode, self.model, self.title = data["mode"], data["model"], data.get("title")
        self.root = data["workspace"]
        return []

    def _configured(self, event: Event, data: Dict) -> list[Dict]:
        updates: list[Dict] = []
        if mode := data.get("mode"):
            self.mode = mode
            updates.append({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        self.model = data.get("model") or self.model
        if mode or data.get("model"):
            options = config_options(self.mode, self.model, self.models())
            updates.append({"sessionUpdate": "config_option_update", "configOptions": options})
        if title := data.get("title"):
            self.title = title
            updates.append({"sessionUpdate": "session_info_update", "title": title})
        return updates

    def _generation(self, event: Event, data: Dict) -> list[Dict]:
        if self.from_start and data.get("cost") is not None:
            self.cost = (self.cost or 0.0) + data["cost"]
        usage = data.get("usage", {})
        if usage.get("input") is None:
            return []
        used = usage["input"] + (usage.get("output") or 0)
        update = {"sessionUpdate": "usage_update", "used": used, "size": self.window(data["model"])}
        if self.cost is not None:
            update["cost"] = {"amount": self.cost, "currency": "USD"}
        return [update]

    def _text(self, event: Event, data: Dict) -> list[Dict]:
        return [_chunk(event.type, data["messageId"], data["text"])]

    def _tool_call(self, event: Event, data: Dict) -> list[Dict]:
        self.calls[data["call_id"]] = _Call(data["name"])
        update: Dict = {
            "sessionUpdate": "tool_call",
            "toolCallId": data["call_id"],
            "title": data.get("title") or data["name"],
            "kind": data.get("kind", "other"),
            "status": "pending",
            "rawInput": data.get("arguments") or {"raw": data.get("raw", "")},
        }
        line = data.get("line")
        if paths := data.get("paths"):
            places = [{"path": self._path(path)} for path in paths]
            update["locations"] = [{**places[0], "line": line} if line else places[0], *places[1:]]
        return [update]

    def _tool_output(self, event: Event, data: Dict) -> list[Dict]:
        call = self.calls.setdefault(data["call_id"], _Call())
        call.output = (call.output + data["text"])[-OUTPUT_TAIL:]
        return [output_update(data["call_id"], data["text"])]

    async def _edit(self, event: Event) -> Dict:
        data = event.data
        call = self.calls.setdefault(data["call_id"], _Call())
        whole = None if call.size < CALL_WHOLE else 0
        now = call.add(await diff_content(data, self._path(data["path"]), self.read_blob, whole))
        update: Dict = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": data["call_id"],
            "status": "in_progress",
        }
        return {**update, "content": list(call.diffs)} if now else update

    def _tool_result(self, event: Event, data: Dict) -> list[Dict]:
        call = self.calls.pop(data["call_id"], None)
        update: Dict = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": data["call_id"],
            "status": "failed" if data.get("error") or data.get("synthetic") else "completed",
        }
        if call is None or not call.diffs:
            update["content"] = [_content(data["text"])]
        elif call.sent[0] < len(call.diffs):
            update["content"] = list(call.diffs)
        facts = {key: data[key] for key in ("error", "synthetic", "output") if data.get(key)}
        if raw := {**data.get("data", {}), **facts}:
            update["rawOutput"] = raw
        return [update]

    def _summary(self, event: Event, data: Dict) -> list[Dict]:
        return [think_call(data, event.seq)]

    def _todo(self, event: Event, data: Dict) -> list[Dict]:
        entries = [
            {
                "content": str(item.get("content", "")),
                "priority": "medium",
                "status": _STATUS.get(item.get("status"), "pending"),
            }
            for item in data.get("items", [])
            if item.get("status") != "cancelled"
        ]
        return [{"sessionUpdate": "plan", "entries": entries}]

    # ---- marks

    def _mark(self, event: Event, term: int, updates: list[Dict]) -> list[Shown]:
        meta, data = _meta(event, term), event.data
        if event.type in _CHUNKS:
            meta |= {"messageId": data["messageId"], "offset": data["offset"]}
        elif event.type == "tool.output":
            meta |= {"messageId": data["call_id"], "offset": data["offset"]}
        elif event.type in ("prompt", "steered"):
            meta["messageId"] = data["message_id"]
        elif event.type == "tool.call":
            meta["name"] = data["name"]
        shown: list[Shown] = []
        for part, update in enumerate(updates, 1):
            if len(updates) > 1:
                meta = {**meta, "part": part, "parts": len(updates)}
            frame = plain = _update(self.session_id, update, meta)
            if event.type == "tool.output":
                tail = self.calls[data["call_id"]].output
                plain = _update(self.session_id, output_update(data["call_id"], tail), _meta(event, term))
            own = None
            if event.type == "summary":
                own = _update(self.session_id, compaction_update(data, event.seq), meta)
            shown.append(Shown(frame, plain, update["sessionUpdate"], own))
        return shown

    def _event(self, event: Event, term: int) -> str:
        """An event that ACP has no form for. Its data comes along where it is small."""
        params: Dict = {"sessionId": self.session_id, **_meta(event, term), "type": event.type}
        left_out = _LEFT_OUT.get(event.type, ())
        data = {key: value for key, value in event.data.items() if key not in left_out}
        if len(to_json(data)) <= DATA_LIMIT:
            params["data"] = data
        return notification("_etude/event", params)

    def _path(self, path: str) -> str:
        return str(PurePosixPath(self.root) / path)


_HANDLERS: dict[str, Callable[[Presenter, Event, Dict], list[Dict]]] = {
    "session.created": Presenter._created,
    "prompt": Presenter._prompt,
    "steered": Presenter._prompt,
    "config.changed": Presenter._configured,
    "generation": Presenter._generation,
    "text": Presenter._text,
    "thought": Presenter._text,
    "tool.call": Presenter._tool_call,
    "tool.output": Presenter._tool_output,
    "tool.result": Presenter._tool_result,
    "todo": Presenter._todo,
    "summary": Presenter._summary,
}


def live_frame(live: Live, term: int) -> str:
    """Characters that are not stored yet."""
    if live.type == "tool.output":
        update = output_update(live.message_id, live.text)
    else:
        update = _chunk(live.type, live.message_id, live.text)
    meta = {"live": True, "term": term, "messageId": live.message_id, "offset": live.offset}
    return _update(live.session_id, update, meta)


def stored_frame(session_id: str, seq: int, message_id: str, end: int) -> str:
    """The characters up to `end` that the client already has are durable now, as event `seq`."""
    params = {"sessionId": session_id, "seq": seq, "messageId": message_id, "end": end}
    return notification("_etude/stored", params)


def output_update(call_id: str, text: str) -> Dict:
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        "status": "in_progress",
        "content": [_content(text)],
    }


def _update(session_id: str, update: Dict, meta: Dict) -> str:
    return notification(
        "session/update", {"sessionId": session_id, "update": update, "_meta": {"etude": meta}}
    )


def _chunk(type: str, message_id: str, text: str) -> Dict:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": _CHUNKS[type], "content": content, "messageId": message_id}


def _content(text: str) -> Dict:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _meta(event: Event, term: int) -> Dict:
    return {"seq": event.seq, "term": term, "ts": event.ts, "turn": event.turn, "step": event.step}
