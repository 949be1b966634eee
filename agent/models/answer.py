"""One answer in the making: folds the chunks of a chat completion into deltas and a completion."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson

from agent.events import TokenTrace, Usage
from agent.models.client import Completion, Delta, ModelError
from agent.models.toolcalls import CallAssembly

MAX_ANSWER: Final = 32 * 2**20
"""Characters of text, thought and arguments together; an endpoint that never ends is stopped there."""

_FINISH: Final = {
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "completed": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "safety": "content_filter",
}

_THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")


class Answer:
    """Fed with the data of each event. `finished` once the model said why it stopped; `done` at `[DONE]`."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thought: list[str] = []
        self.calls = CallAssembly()
        self.finish: str | None = None
        self.done = False
        self.request_id: str | None = None
        self.usage = Usage()
        self.prompt_ids: list[int] | None = None
        self._size = 0
        self._halves: dict[str, str] = {}
        self._refused = False
        self._ids: list[int] = []
        self._logprobs: list[float] = []

    @property
    def finished(self) -> bool:
        return self.finish is not None or self.done

    @property
    def started(self) -> bool:
        """Whether the model has said anything yet."""
        return bool(self.text or self.thought or self.calls)

    @property
    def characters(self) -> int:
        return self._size

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas of one event.

        Raises:
            ModelError: the event is no chunk of a chat completion.
            ReportedError: the endpoint reports a failure inside the stream.
        """
        if data.startswith(b"[DONE]"):
            self.done = True
            return []
        chunk = _loads(data)
        if not isinstance(chunk, dict):
            raise _broken(data, "is not a JSON object")
        error = chunk.get("error")
        if error:
            raise ReportedError(error)
        if self.request_id is None and isinstance(chunk.get("id"), str):
            self.request_id = chunk["id"] or None
        if self.prompt_ids is None:
            self.prompt_ids = _ids(chunk.get("prompt_token_ids"))
        self._account(chunk.get("usage") or _mapping(chunk.get("x_groq")).get("usage"))
        choices = chunk.get("choices")
        if not choices:
            return []
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise _broken(data, "has choices of an unknown form")
        deltas = self._delta(_mapping(choice.get("delta") or choice.get("message")))
        self._account(choice.get("usage"))
        self._trace(choice)
        reason = choice.get("finish_reason")
        if reason:
            self._stop(str(reason), choice)
        if self._size > MAX_ANSWER:
            raise ModelError(f"The model's answer passed {MAX_ANSWER >> 20} MiB and was stopped.")
        return deltas

    def completion(self, retries: int = 0, sampling: dict[str, Any] | None = None) -> Completion:
        """The finished generation."""
        calls = self.calls.calls()
        finish = self.finish or "stop"
        if calls and finish == "stop":
            finish = "tool_calls"
        elif not calls and finish == "tool_calls":
            finish = "stop"
        if self._refused:
            finish = "refusal"
        trace = None
        if self._ids:
            exact = len(self._logprobs) == len(self._ids)
            trace = TokenTrace(
                prompt_length=None if self.prompt_ids is None else len(self.prompt_ids),
                completion=self._ids,
                logprobs=self._logprobs if exact else None,
            )
        return Completion(
            text="".join(self.text),
            thought="".join(self.thought),
            calls=calls,
            finish=finish,
            usage=self.usage,
            request_id=self.request_id,
            tokens=trace,
            prompt_ids=self.prompt_ids,
            retries=retries,
            sampling=sampling,
        )

    def _delta(self, delta: Mapping[str, Any]) -> list[Delta]:
        deltas: list[Delta] = []
        for name in _THOUGHT_FIELDS:
            value = delta.get(name)
            if value and isinstance(value, str):
                self._say("thought", value, deltas)
                break
        content = delta.get("content")
        if isinstance(content, str):
            if content:
                self._say("text", content, deltas)
        elif isinstance(content, list):
            self._parts(content, deltas)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._refused = True
            self._say("text", refusal, deltas)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for part in calls:
                if isinstance(part, dict):
                    self._size += self.calls.add(part)
        elif isinstance(delta.get("function_call"), dict):
            self._size += self.calls.add({"index": 0, "function": delta["function_call"]})
        return deltas

    def _parts(self, parts: list[Any], deltas: list[Delta]) -> None:
        """Content as a list of parts, `text` and `thinking` (whose value is text or again a list)."""
        for part in parts:
            if isinstance(part, str):
                self._say("text", part, deltas)
            elif isinstance(part, dict):
                if isinstance(part.get("text"), str):
                    self._say("text", part["text"], deltas)
                thinking = part.get("thinking")
                for item in thinking if isinstance(thinking, list) else [thinking]:
                    text = item.get("text") if isinstance(item, dict) else item
                    if isinstance(text, str):
                        self._say("thought", text, deltas)

    def _say(self, kind: Literal["text", "thought"], text: str, deltas: list[Delta]) -> None:
        text = self._whole(kind, text)
        if text:
            self._size += len(text)
            (self.text if kind == "text" else self.thought).append(text)
            deltas.append(Delta(kind, text))

    def _whole(self, kind: str, text: str) -> str:
        """Text without lone surrogates: some endpoints cut a character between two chunks."""
        if not self._halves and text.isascii():
            return text
        text = self._halves.pop(kind, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[kind] = text[-1]
            text = text[:-1]
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def _stop(self, reason: str, choice: Mapping[str, Any]) -> None:
        word = reason.lower()
        if word in ("error", "abort", "failed"):
            details = choice.get("error") or {"message": f"it stopped with finish_reason {reason!r}"}
            raise ReportedError(details)
        self.finish = _FINISH.get(word, word)

    def _account(self, usage: Any) -> None:
        """The last usage wins: some endpoints send running totals."""
        if not isinstance(usage, Mapping):
            return
        prompt = _mapping(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
        output = _mapping(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
        self.usage = Usage(
            input=_count(usage.get("prompt_tokens"), usage.get("input_tokens")),
            cached=_count(
                prompt.get("cached_tokens"),
                usage.get("prompt_cache_hit_tokens"),
                usage.get("cache_read_input_tokens"),
                usage.get("cached_tokens"),
            ),
            output=_count(usage.get("completion_tokens"), usage.get("output_tokens")),
            reasoning=_count(output.get("reasoning_tokens"), usage.get("reasoning_tokens")),
        )

    def _trace(self, choice: Mapping[str, Any]) -> None:
        ids = _ids(choice.get("token_ids"))
        if not ids:
            return
        self._ids += ids
        content = _mapping(choice.get("logprobs")).get("content")
        for item in content if isinstance(content, list) else ():
            value = item.get("logprob") if isinstance(item, dict) else None
            if isinstance(value, int | float):
                self._logprobs.append(float(value))


class ReportedError(Exception):
    """An `error` object that the endpoint sent inside a stream that had begun well."""

    def __init__(self, error: Any) -> None:
        super().__init__(error)
        self.error = error


def _loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    import json  # lenient: half a surrogate pair, NaN, bytes that are not UTF-8

    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise _broken(data, "is not JSON") from None


def _broken(data: bytes, what: str) -> ModelError:
    excerpt = data[:120].decode("utf-8", "replace")
    return ModelError(
        f"The endpoint sent a chunk that {what}: {excerpt!r}. Expected chat.completion.chunk objects;"
        " is base_url an OpenAI-compatible address (most end in /v1)?",
        retryable=True,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(*values: Any) -> int | None:
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0), None)


def _ids(value: Any) -> list[int] | None:
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return value
    return None
