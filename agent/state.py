"""The state of a session: a fold of its log. Nothing here is known that the log does not say."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from agent.content import render
from agent.events import Event, Mode, Usage
from agent.summary.ledger import Ledger
from agent.summary.size import BYTES_PER_TOKEN, ratio_of
from tools.text import shortened, visible

ARGUMENT_LIMIT = 65_536
"""Characters of one call's arguments that stay in the context; longer ones are noted, not repeated."""

NAMED_EDITS = 20
"""Files changed by others that the model is told by name."""
NAME_LENGTH = 120
"""Characters of such a name."""

TITLE_LENGTH = 80
"""Characters."""


@dataclass(slots=True)
class Waiting:
    """A message of the user that no turn has taken up yet."""

    seq: int
    message_id: str
    text: str
    blocks: list[dict[str, Any]]
    editor: dict[str, Any] | None = None


@dataclass(slots=True)
class State:
    """Everything the loop, the hub and the clients need to know of a session.

    `messages` is the conversation of the present segment in the chat-completions format, without the system
    message; until a summary begins the next segment it only grows, so that consecutive requests share their
    prefix.
    """

    workspace: str = ""
    user_id: str = ""
    model: str = ""
    mode: Mode = "ask"
    profile: Literal["full", "compact"] = "full"
    title: str | None = None
    last_seq: int = 0
    turn: int = 0
    step: int = 0
    steps: int = 0
    """Generations of the present turn."""
    made: dict[str, int] = field(default_factory=dict)
    """Generations of the session, by their purpose."""
    running: bool = False
    system: str | None = None
    tools: list[dict[str, Any]] | None = None
    prefix: tuple[str, str, str] | None = None
    """(model, mode, profile) that `system` and `tools` were made for."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    queued: list[Waiting] = field(default_factory=list)
    steered: list[Waiting] = field(default_factory=list)
    pending_calls: dict[str, str] = field(default_factory=dict)
    """Calls of the model that have no result yet: id → tool name."""
    announced: set[str] = field(default_factory=set)
    """Pending calls that have a `tool.call` event."""
    partial: str = ""
    """Text streamed since the last generation ended: kept as a message if the turn is broken off."""
    partial_id: str | None = None
    seen: dict[str, str] = field(default_factory=dict)
    tree: str | None = None
    """The last known state of the workspace's files."""
    unsettled: bool = False
    """A call that may change files began, and no checkpoint followed it yet."""
    edited: dict[str, str] = field(default_factory=dict)
    """Files that others changed since the model was last asked: path → what to say of it."""
    asking: str | None = None
    """The last message, while it is a user's that no model call has taken up."""
    instructions: set[str] = field(default_factory=set)
    todos: list[dict[str, str]] = field(default_factory=list)
    """What the agent's list says: `{content, status}`."""
    rules: set[str] = field(default_factory=set)
    asked: dict[str, str] = field(default_factory=dict)
    """Open approval requests: request id → call id."""
    accepted: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Message ids the log has accepted: id → (seq, `turn`, `queue` or `steer`)."""
    prompt_node: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    context_tokens: int = 0
    segment: int = 1
    ledger: Ledger = field(default_factory=Ledger)
    """What is kept across summaries."""
    counted: int = 0
    """Messages of the present segment that `counted_tokens` includes."""
    counted_tokens: int = 0
    """What the last step's usage says of the prompt up to there; 0 = nothing."""
    ratio: float = BYTES_PER_TOKEN
    """Bytes of a prompt per token, as last measured."""
    asking_seq: int = 0
    """The `prompt` event of `asking`."""
    end_reason: str | None = None

    def apply(self, event: Event) -> None:
        """Take one event into account. Unknown types change nothing."""
        self.last_seq, data = event.seq, event.data
        self.turn, self.step = max(self.turn, event.turn), event.step
        handler = _HANDLERS.get(event.type)
        if handler is not None:
            handler(self, event, data)
        self.ledger.apply(event)


def fold(events: Iterable[Event]) -> State:
    """The state after these events."""
    state = State()
    for event in events:
        state.apply(event)
    return state


def add_usage(total: Usage, more: Usage) -> Usage:
    """Field-wise sum; None where neither side reported."""

    def plus(left: int | None, right: int | None) -> int | None:
        return None if left is None and right is None else (left or 0) + (right or 0)

    return Usage(
        input=plus(total.input, more.input),
        cached=plus(total.cached, more.cached),
        output=plus(total.output, more.output),
        reasoning=plus(total.reasoning, more.reasoning),
    )


def _created(state: State, event: Event, data: dict[str, Any]) -> None:
    state.workspace, state.user_id = data["workspace"], data["user_id"]
    state.model, state.mode, state.profile = data["model"], data["mode"], data["profile"]
    state.title = data.get("title")


def _configured(state: State, event: Event, data: dict[str, Any]) -> None:
    state.model = data.get("model") or state.model
    state.mode = data.get("mode") or state.mode
    state.profile = data.get("profile") or state.profile
    state.title = data.get("title") or state.title
    state.rules.difference_update(data.get("revoked") or ())


def _waiting(event: Event, data: dict[str, Any]) -> Waiting:
    return Waiting(event.seq, data["message_id"], data["text"], data.get("blocks", []), data.get("editor"))


def _queued(state: State, event: Event, data: dict[str, Any]) -> None:
    state.queued.append(_waiting(event, data))
    state.accepted[data["message_id"]] = (event.seq, "queue")


def _steered(state: State, event: Event, data: dict[str, Any]) -> None:
    state.steered.append(_waiting(event, data))
    state.accepted[data["message_id"]] = (event.seq, "steer")


def _prompt(state: State, event: Event, data: dict[str, Any]) -> None:
    _take_steered(state, None)
    state.queued = [item for item in state.queued if item.seq != data.get("queued_seq")]
    state.accepted.setdefault(data["message_id"], (event.seq, "turn"))
    message = _user(data["text"], data.get("blocks", []), data.get("editor"))
    state.messages.append(message)
    state.asking, state.asking_seq = message["content"], event.seq
    _note(state)
    state.title = state.title or title_of(data["text"])
    state.running, state.end_reason, state.steps = True, None, 0


def _turn_started(state: State, event: Event, data: dict[str, Any]) -> None:
    state.running = True
    state.prefix = (data["model"], data["mode"], data["profile"])
    if data.get("system") is not None:
        state.system, state.tools = data["system"], data.get("tools", [])


def _text(state: State, event: Event, data: dict[str, Any]) -> None:
    if data["messageId"] != state.partial_id:
        state.partial_id, state.partial = data["messageId"], ""
    state.partial = state.partial[: data["offset"]] + data["text"]


def _generation(state: State, event: Event, data: dict[str, Any]) -> None:
    usage = _counted(state, data)
    purpose = data.get("purpose", "step")
    state.made[purpose] = state.made.get(purpose, 0) + 1
    if purpose == "summary":
        return  # what it wrote comes with the `summary` event, if it was taken
    if state.asking is not None:
        state.asking, state.edited = None, {}
    _take_steered(state, data.get("steered"))
    calls = data.get("calls", [])
    message: dict[str, Any] = {"role": "assistant", "content": data["text"] or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": context_arguments(call["arguments"])},
            }
            for call in calls
        ]
    elif not data["text"]:
        message["content"] = ""
    state.messages.append(message)
    state.steps += 1
    state.pending_calls = {call["id"]: call["name"] for call in calls}
    state.announced = set()
    state.partial, state.partial_id = "", None
    if usage.input is not None:
        state.context_tokens = usage.input + (usage.output or 0)
        # Thoughts are not sent again.
        state.counted, state.counted_tokens = (
            len(state.messages),
            state.context_tokens - (usage.reasoning or 0),
        )


def _counted(state: State, data: dict[str, Any]) -> Usage:
    """Add up what a model call took, whatever it was for."""
    state.prompt_node = data["prompt"]["node"]
    usage = Usage.model_validate(data.get("usage", {}))
    state.usage = add_usage(state.usage, usage)
    if data.get("cost") is not None:
        state.cost = (state.cost or 0.0) + data["cost"]
    state.ratio = ratio_of(data["prompt"]["bytes"], usage.input) or state.ratio
    return usage


def _summary(state: State, event: Event, data: dict[str, Any]) -> None:
    """A new segment: its conversation is in the event, whole."""
    state.messages = [dict(message) for message in data["messages"]]
    state.segment = data["segment"]
    state.instructions = set()  # their text is gone with the old conversation: they are shown again
    state.counted, state.counted_tokens = 0, 0


def _tool_call(state: State, event: Event, data: dict[str, Any]) -> None:
    state.announced.add(data["call_id"])
    state.unsettled = state.unsettled or not data.get("read_only", False)


def _tool_result(state: State, event: Event, data: dict[str, Any]) -> None:
    state.pending_calls.pop(data["call_id"], None)
    state.announced.discard(data["call_id"])
    state.messages.append({"role": "tool", "tool_call_id": data["call_id"], "content": data["text"]})
    state.seen.update(data.get("seen", {}))
    state.instructions.update(data.get("data", {}).get("instructions", []))


def _todo(state: State, event: Event, data: dict[str, Any]) -> None:
    state.todos = data["items"]


def _user_edit(state: State, event: Event, data: dict[str, Any]) -> None:
    gone = "" if data.get("after") else " (deleted)" if data.get("before") else ""
    state.edited[data["path"]] = gone
    _note(state)


def _restored(state: State, event: Event, data: dict[str, Any]) -> None:
    state.tree = data.get("tree") or state.tree
    for path in data.get("changed", []):
        state.edited[path] = " (your change was taken back)"
    _note(state)


def _checkpoint(state: State, event: Event, data: dict[str, Any]) -> None:
    state.tree = data.get("tree") or state.tree
    if data.get("reason") != "prompt":
        state.unsettled = False


def _note(state: State) -> None:
    """Tell the model in the message it is about to be sent which files others changed."""
    if state.asking is None or not state.edited:
        return
    named = [f"{visible(path, NAME_LENGTH)}{what}" for path, what in list(state.edited.items())[:NAMED_EDITS]]
    more = f" and {len(state.edited) - NAMED_EDITS} more" if len(state.edited) > NAMED_EDITS else ""
    state.messages[-1]["content"] = (
        f"{state.asking}\n\n[Changed by the user since your last turn: {', '.join(named)}{more}. "
        "Read them again before you rely on what they held.]"
    )


def _asked(state: State, event: Event, data: dict[str, Any]) -> None:
    state.asked[data["request_id"]] = data["call_id"]


def _resolved(state: State, event: Event, data: dict[str, Any]) -> None:
    state.asked.pop(data["request_id"], None)
    state.rules.update(data.get("rules") or ())


def _turn_ended(state: State, event: Event, data: dict[str, Any]) -> None:
    if state.partial:
        state.messages.append({"role": "assistant", "content": state.partial})
    state.partial, state.partial_id = "", None
    state.running, state.end_reason, state.asking = False, data["reason"], None
    state.asked.clear()


def _take_steered(state: State, seqs: list[int] | None) -> None:
    """Move steering messages into the conversation: the named ones, or all that still wait."""
    for item in state.steered:
        if seqs is None or item.seq in seqs:
            state.messages.append(_user(item.text, item.blocks, item.editor))
    state.steered = [item for item in state.steered if seqs is not None and item.seq not in seqs]


def _user(text: str, blocks: list[dict[str, Any]], editor: dict[str, Any] | None) -> dict[str, Any]:
    return {"role": "user", "content": render(text, blocks, editor)}


def title_of(text: str) -> str:
    """What a session is called where nobody has named it: the first line that says something, cut."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return shortened(line, TITLE_LENGTH)


def context_arguments(raw: str) -> str:
    """A call's arguments as later requests repeat them: valid JSON of bounded size, or a note.

    Providers refuse a history whose calls are not valid JSON; the log keeps what the model wrote.
    """
    if len(raw) > ARGUMENT_LIMIT:
        return orjson.dumps({"left_out": f"{len(raw)} characters of arguments"}).decode()
    try:
        if isinstance(orjson.loads(raw or "{}"), dict):
            return raw or "{}"
    except orjson.JSONDecodeError:
        pass
    return orjson.dumps({"malformed": raw[:2000]}).decode()


_HANDLERS = {
    "session.created": _created,
    "config.changed": _configured,
    "queued": _queued,
    "steered": _steered,
    "prompt": _prompt,
    "turn.started": _turn_started,
    "text": _text,
    "generation": _generation,
    "tool.call": _tool_call,
    "tool.result": _tool_result,
    "todo": _todo,
    "summary": _summary,
    "user_edit": _user_edit,
    "checkpoint": _checkpoint,
    "restored": _restored,
    "approval.requested": _asked,
    "approval.resolved": _resolved,
    "turn.ended": _turn_ended,
}
