"""One session as a client sees it: opened or resumed, prompted, followed, cancelled, reconnected by `seq`."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ulid import ULID

from server.failure import CommandFailed
from server.terminal.acp_client import AcpClient, Closed, Frame, Interrupt, RpcFailed, result

RECONNECT_S = 20.0
GRACE_S = 1.0
"""How long the log's own end of a turn may come after the answer to its prompt; it says more."""
TAIL = 200
"""Events of a resumed session that are shown again."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something that happened. `kind` says how `params` are to be read.

    `update`: a `session/update`; `event`: an `_etude/event`; `permission` and `form`: questions (answer
    them with `id`); `resolved`: a question answered elsewhere; `notice`: `{text}` from this client;
    `interrupt`: Ctrl-C; `quiet`: nothing happened for a moment.
    """

    kind: Literal["update", "event", "permission", "form", "resolved", "notice", "interrupt", "quiet"]
    params: Mapping[str, Any]
    id: int | str | None = None


@dataclass(slots=True)
class Ended:
    """How a turn ended. `reason` as in the log."""

    reason: str
    message: str = ""
    steps: int = 0
    usage: Mapping[str, Any] | None = None
    cost: float | None = None


class Conversation:
    """Call `open` or `resume` once, then iterate over `turn(text)`; `ended` tells how the last turn ended."""

    def __init__(self, client: AcpClient) -> None:
        self.client = client
        self.session_id = ""
        self.last_seq = 0
        self.mode = ""
        self.models: list[str] = []
        self.model = ""
        self.ended: Ended | None = None
        self._answer: Ended | None = None
        self._part = 0
        self._have: dict[str, int] = {}
        self._waiting: deque[Frame | Closed | Interrupt] = deque()
        self._turn = 0
        self._ends: dict[int, Ended] = {}

    def open(self, workspace: Path, meta: Mapping[str, Any] | None = None) -> None:
        """A new session. `meta` becomes `_meta.etude` of `session/new`."""
        params: dict[str, Any] = {"cwd": str(workspace), "mcpServers": []}
        if meta:
            params["_meta"] = {"etude": dict(meta)}
        made = self.client.call("session/new", params)
        self.session_id = str(made["sessionId"])
        self._learn(made)
        self.client.call("_etude/attach", {"sessionId": self.session_id, "afterSeq": 0})

    def resume(self, session_id: str, workspace: Path) -> list[Item]:
        """Attach to a session that exists. Returns its last events."""
        known = self.client.call(
            "session/resume", {"sessionId": session_id, "cwd": str(workspace), "mcpServers": []}
        )
        self.session_id = session_id
        self._learn(known)
        row = self.client.host.get(f"/api/sessions/{session_id}")
        self.last_seq = max(0, int(row.get("last_seq") or 0) - TAIL)
        attached = self.client.call("_etude/attach", {"sessionId": session_id, "afterSeq": self.last_seq})
        last, past, deadline = int(attached.get("lastSeq") or 0), [], time.monotonic() + 10
        while self.last_seq < last and time.monotonic() < deadline:
            past += [item for item in self._take(self.client.receive(0.5)) if item.kind != "quiet"]
        return past

    def turn(self, text: str, max_steps: int | None = None) -> Iterator[Item]:
        """Send a prompt and yield what happens until its turn is over (then `ended` is set).

        `max_steps` bounds its model calls.
        """
        message_id = str(ULID())
        self.ended, self._turn, self._answer = None, 0, None
        answered = 0.0
        prompt = self._prompt(text, message_id, max_steps)
        while self.ended is None:
            if self._answer is not None and time.monotonic() - answered > GRACE_S:
                self.ended = self._answer
                break
            frame = self._waiting.popleft() if self._waiting else self.client.receive(0.25)
            if isinstance(frame, Closed):
                yield Item("notice", {"text": f"connection lost ({frame.reason}); reconnecting"})
                self._reconnect()
                if not self._turn:
                    prompt = self._prompt(text, message_id, max_steps)  # a repeated id is never run twice
                continue
            if isinstance(frame, Frame) and frame.method is None:
                if frame.id == prompt:
                    self._answer, answered = _end_of(frame), time.monotonic()
                continue
            for item in self._take(frame):
                self._watch(item, message_id)
                yield item
            if self._turn in self._ends:
                self.ended = self._ends[self._turn]
        if self.ended.reason == "interrupted":
            yield Item("notice", {"text": "the server stopped during this turn; send a message to go on"})

    def cancel(self) -> None:
        """Stop the running turn; its end is still to come."""
        self.client.notify("session/cancel", {"sessionId": self.session_id})

    def decide(self, item: Item, option: str | None) -> None:
        """Answer a permission question with one of its options, or dismiss it."""
        outcome = {"outcome": "selected", "optionId": option} if option else {"outcome": "cancelled"}
        if item.id is not None:
            self.client.answer(item.id, {"outcome": outcome})

    def fill(self, item: Item, content: Mapping[str, str] | None) -> None:
        """Answer a form with what was said, or decline it."""
        answer = {"action": "accept", "content": dict(content)} if content else {"action": "decline"}
        if item.id is not None:
            self.client.answer(item.id, answer)

    def overtaken(self, item: Item) -> bool:
        """Whether a question needs no answer any more, or the user has something else to say."""
        while (frame := self.client.receive(0)) is not None:
            self._waiting.append(frame)
        asked = _mark(item.params).get("requestId")
        return any(
            not isinstance(frame, Frame)
            or frame.method is None
            or (frame.method == "_etude/permission_resolved" and frame.body.get("requestId") == asked)
            for frame in self._waiting
        )

    def set_mode(self, mode: str) -> None:
        self.client.call("session/set_mode", {"sessionId": self.session_id, "modeId": mode})
        self.mode = mode

    def set_model(self, model: str) -> None:
        params = {"sessionId": self.session_id, "configId": "model", "value": model}
        self.client.call("session/set_config_option", params)
        self.model = model

    def _prompt(self, text: str, message_id: str, max_steps: int | None) -> int:
        limit = {} if max_steps is None else {"maxSteps": max_steps}
        return self.client.send(
            "session/prompt",
            {
                "sessionId": self.session_id,
                "prompt": [{"type": "text", "text": text}],
                "_meta": {"etude": {"clientMessageId": message_id, **limit}},
            },
        )

    def _watch(self, item: Item, message_id: str) -> None:
        """Learn the number of our turn, and how turns end."""
        mark = _mark(item.params)
        if item.kind == "update" and mark.get("messageId") == message_id and mark.get("turn"):
            self._turn = int(mark["turn"])
        if item.kind == "event" and item.params.get("type") == "turn.ended":
            data = item.params.get("data") or {}
            self._ends[int(item.params.get("turn") or 0)] = Ended(
                str(data.get("reason", "end_turn")),
                str(data.get("message") or ""),
                int(data.get("steps") or 0),
                data.get("usage"),
                data.get("cost"),
            )

    def _take(self, frame: Frame | Closed | Interrupt | None) -> list[Item]:
        """The item of a frame of our session; nothing for what was seen already."""
        if frame is None:
            return [Item("quiet", {})]
        if isinstance(frame, Interrupt):
            return [Item("interrupt", {})]
        if isinstance(frame, Closed):
            raise CommandFailed(f"the connection to the server ended ({frame.reason})")
        if frame.body.get("sessionId") != self.session_id:
            return []
        if frame.method == "session/request_permission":
            return [Item("permission", frame.body, frame.id)]
        if frame.method == "elicitation/create":
            return [Item("form", frame.body, frame.id)]
        if frame.method == "_etude/permission_resolved":
            return [Item("resolved", frame.body)]
        if frame.method in ("session/update", "_etude/event", "_etude/stored"):
            if self._seen(frame):
                return []
            if frame.method == "_etude/stored":
                return []
            if frame.method == "_etude/event":
                return [Item("event", frame.body)]
            return [Item("update", params)] if (params := self._fresh(frame.body)) else []
        return []

    def _fresh(self, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """An update without the characters seen before: they come live, and again where some were lost."""
        mark, update = _mark(params), params.get("update") or {}
        offset, content = mark.get("offset"), update.get("content")
        whole = isinstance(content, list)  # the output of a command comes in a list of one
        chunk = content[0].get("content") if whole and content else content
        if not isinstance(offset, int) or not isinstance(chunk, dict):
            return params
        message = str(mark.get("messageId"))
        have, text = self._have.get(message, 0), str(chunk.get("text", ""))
        if offset > have or offset + len(text) <= have:
            return None
        self._have[message] = offset + len(text)
        if offset == have:
            return params
        rest = {**chunk, "text": text[have - offset :]}
        kept = [{**content[0], "content": rest}] if whole else rest
        return {**params, "update": {**update, "content": kept}}

    def _seen(self, frame: Frame) -> bool:
        mark = frame.body if frame.method != "session/update" else _mark(frame.body)
        seq, part = mark.get("seq"), int(mark.get("part") or 1)
        if not isinstance(seq, int):
            return False
        if seq <= self.last_seq or (seq == self.last_seq + 1 and part <= self._part):
            return True
        if part >= int(mark.get("parts") or 1):
            self.last_seq, self._part = seq, 0
        else:
            self._part = part
        return False

    def _reconnect(self) -> None:
        deadline, pause = time.monotonic() + RECONNECT_S, 0.1
        while True:
            try:
                self.client.connect()
                self.client.call("_etude/attach", {"sessionId": self.session_id, "afterSeq": self.last_seq})
                return
            except CommandFailed as failure:
                if time.monotonic() > deadline:
                    raise CommandFailed(
                        f"lost the server: {failure}; `etude chat --resume {self.session_id}` goes on later"
                    ) from failure
            time.sleep(pause)
            pause = min(2.0, pause * 2)

    def _learn(self, answer: Mapping[str, Any]) -> None:
        self.mode = str((answer.get("modes") or {}).get("currentModeId") or "")
        for option in answer.get("configOptions") or []:
            if option.get("id") == "model":
                self.model = str(option.get("currentValue") or "")
                self.models = [str(choice["value"]) for choice in option.get("options") or []]


def _mark(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return (params.get("_meta") or {}).get("etude") or {}


def _end_of(answer: Frame) -> Ended:
    """How a turn ended, as far as the answer to its prompt says it."""
    try:
        return Ended(str(result(answer.body, "session/prompt").get("stopReason", "end_turn")))
    except RpcFailed as failure:
        return Ended("error", str(failure))
