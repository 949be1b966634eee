"""Turns of the scripted model, and how each looks on the wire."""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass
class Turn:
    """One answer. What is not set is left out.

    Text is streamed word by word, or in pieces of `chunk` characters, one chunk every `delay_ms`.
    """

    text: str = ""
    thought: str = ""
    thought_field: str = "reasoning_content"
    calls: Sequence[Mapping[str, Any]] = ()
    """`{name, arguments | raw, id?}`; `raw` is sent as the argument text, valid JSON or not."""
    refusal: str = ""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    """Replaces fields of the computed usage."""
    chunk: int | None = None
    delay_ms: float = 0
    first_ms: float = 0
    """Wait before the status line is sent."""
    stamp: bool = False
    """Words carry the time they were sent at: `word@unix-seconds`."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Any = None
    """The body of a status error: an object, or raw text."""
    die_after: int | None = None
    """The connection is cut after so many chunks; 0 = after the headers."""
    stall_after: int | None = None
    """Nothing more is sent after so many chunks."""
    garbage: str = ""
    garbage_after: int = 0
    """Raw bytes put on the stream after so many chunks."""
    garbage_times: int = 1
    """How often, one every `delay_ms`."""
    raw_body: str = ""
    """A plain body with status 200 instead of everything else."""
    deltas: Sequence[Mapping[str, Any]] = ()
    """Choice deltas sent verbatim, after the text and before the calls: a provider's own ways."""
    chunks: Sequence[Mapping[str, Any]] = ()
    """Whole chunk objects sent verbatim instead of everything else."""
    done: bool = True
    """Whether `data: [DONE]` ends the stream."""
    crlf: bool = False


TurnLike = Turn | str | Mapping[str, Any]
Script = Sequence[Any] | Callable[[dict[str, Any]], Any]
"""Turns (or functions of the request body that give one), or one function for all requests."""


def turn_of(value: TurnLike) -> Turn:
    if isinstance(value, Turn):
        return value
    if isinstance(value, str):
        return Turn(text=value)
    known = {key: item for key, item in value.items() if key != "break"}
    if "delay" in known:
        known["delay_ms"] = known.pop("delay") * 1000
    return Turn(**known)


def first_user_message(body: Mapping[str, Any]) -> str:
    """The text that names a conversation."""
    for message in body.get("messages") or ():
        if message.get("role") == "user":
            content = message.get("content")
            return content if isinstance(content, str) else orjson.dumps(content).decode()
    return ""


def token_ids(text: str) -> list[int]:
    """Made-up tokens, four characters each: a longer text keeps the ids of its prefix."""
    return [zlib.crc32(text[at : at + 4].encode()) % 50_000 for at in range(0, len(text), 4)]


def usage_of(turn: Turn, usage: dict[str, Any]) -> dict[str, Any]:
    written = turn.text + turn.thought + "".join(_arguments(call) for call in turn.calls)
    output = len(token_ids(written)) or 1
    return {
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": output,
        "total_tokens": usage["prompt_tokens"] + output,
        "prompt_tokens_details": {"cached_tokens": usage["cached"]},
        "completion_tokens_details": {"reasoning_tokens": len(token_ids(turn.thought))},
        **(turn.usage or {}),
    }


def _arguments(call: Mapping[str, Any]) -> str:
    return str(call["raw"]) if "raw" in call else orjson.dumps(call.get("arguments", {})).decode()


def _calls(turn: Turn, name: str) -> list[dict[str, Any]]:
    return [
        {
            "index": i,
            "id": call.get("id", f"call_{name}_{i}"),
            "type": "function",
            "function": {"name": call["name"], "arguments": _arguments(call)},
        }
        for i, call in enumerate(turn.calls)
    ]


def _finish(turn: Turn) -> str:
    return turn.finish or ("tool_calls" if turn.calls else "stop")


def _logprobs(text: str, ids: list[int]) -> dict[str, Any]:
    return {
        "content": [
            {"token": text[4 * i : 4 * i + 4], "logprob": -(t % 7 + 1) / 8} for i, t in enumerate(ids)
        ]
    }


def whole(body: dict[str, Any], name: str, turn: Turn, usage: dict[str, Any], model: str) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.thought:
        message[turn.thought_field] = turn.thought
    if turn.calls:
        message["tool_calls"] = [
            {key: item for key, item in call.items() if key != "index"} for call in _calls(turn, name)
        ]
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": _finish(turn)}
    ids = token_ids(turn.text)
    if body.get("return_token_ids"):
        choice["token_ids"] = ids
    if body.get("logprobs"):
        choice["logprobs"] = _logprobs(turn.text, ids)
    return {
        "id": f"gen-{name}",
        "object": "chat.completion",
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


def _pieces(text: str, chunk: int | None) -> Iterator[str]:
    if chunk is not None:
        yield from (text[at : at + chunk] for at in range(0, len(text), chunk))
        return
    words = text.split(" ")
    yield from (word + " " for word in words[:-1])
    if words[-1]:
        yield words[-1]


def stream(
    body: dict[str, Any], name: str, turn: Turn, usage: dict[str, Any], model: str
) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed answer, in order."""
    if turn.chunks:
        yield from (dict(chunk) for chunk in turn.chunks)
        return
    head = {"id": f"gen-{name}", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: Mapping[str, Any], finish: str | None = None, **extra: Any) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **extra}]}

    first = chunk({"role": "assistant", "content": ""})
    exact = bool(body.get("return_token_ids"))
    if exact:
        first["prompt_token_ids"] = token_ids(orjson.dumps(body.get("messages")).decode())
    yield first
    for piece in _pieces(turn.thought, turn.chunk):
        yield chunk({turn.thought_field: piece})
    for piece in _pieces(turn.text, turn.chunk):
        if turn.stamp:
            piece = f"{piece.strip()}@{time.time():.6f} "
        ids = token_ids(piece)
        extra: dict[str, Any] = {"token_ids": ids} if exact else {}
        if body.get("logprobs"):
            extra["logprobs"] = _logprobs(piece, ids)
        yield chunk({"content": piece}, **extra)
    if turn.refusal:
        yield chunk({"refusal": turn.refusal})
    for delta in turn.deltas:
        yield chunk(delta)
    for call in _calls(turn, name):
        function = call["function"]
        yield chunk({"tool_calls": [{**call, "function": {"name": function["name"], "arguments": ""}}]})
        step = max(40, len(function["arguments"]) // 200)
        for at in range(0, len(function["arguments"]), step):
            part = {"index": call["index"], "function": {"arguments": function["arguments"][at : at + step]}}
            yield chunk({"tool_calls": [part]})
    yield chunk({}, _finish(turn))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": usage}
