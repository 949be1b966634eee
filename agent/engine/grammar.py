"""Keeps a model that has begun a tool call to valid JSON of a known tool's schema."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import llguidance
import numpy
import orjson

log = logging.getLogger(__name__)

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"


class Vocabulary:
    """A tokenizer in the form that grammars need; made once per model (0.3 s)."""

    def __init__(self, tokenizer_json: str, size: int, eos_id: int) -> None:
        self.tokenizer = llguidance.LLTokenizer(tokenizer_json, n_vocab=size, eos_token=eos_id)

    @cached_property
    def not_opening(self) -> Sequence[bool]:
        """Every id but those that begin a tool call: text that starts with `<t`, or `<` alone."""
        texts = (self.tokenizer.decode_str([id]).strip() for id in range(self.tokenizer.vocab_size))
        return [not (text and OPEN.startswith(text)) and not text.startswith(OPEN) for text in texts]


class ToolCallConstraint:
    """Nothing is restricted until the text holds `<tool_call>`; from there to `</tool_call>` only JSON of the
    form `{"name": TOOL, "arguments": {…}}` may come, its arguments fitting the tool's schema.

    `decode` gives the text of ids. What the grammar library cannot express stays unrestricted.
    """

    def __init__(
        self, vocabulary: Vocabulary, tools: Sequence[Mapping[str, Any]], decode: Callable[[list[int]], str]
    ) -> None:
        self._vocabulary = vocabulary
        self._grammar = llguidance.LLMatcher.grammar_from_lark(grammar(tools))
        self._decode = decode
        self._ids: list[int] = []
        self._matcher: llguidance.LLMatcher | None = None

    def allowed(self) -> Sequence[bool] | None:
        if self._matcher is None:
            return None
        bits = numpy.frombuffer(self._matcher.compute_bitmask(), dtype=numpy.uint8)
        mask = numpy.unpackbits(bits, bitorder="little").astype(bool)
        if self._failed() or not mask.any():
            self._matcher = None
            return None
        return mask  # type: ignore[return-value]  # an array of booleans is a sequence of them

    def accept(self, id: int) -> None:
        if self._matcher is not None:
            self._matcher.consume_token(id)
            if self._failed() or self._matcher.is_stopped():
                self._matcher = None
                self._ids = []
            return
        self._ids.append(id)
        text = self._decode(self._ids[-32:])
        if OPEN in text and CLOSE not in text:
            self._begin(text.rpartition(OPEN)[2])

    def _begin(self, rest: str) -> None:
        """Start the grammar; `rest` is what the last token wrote beyond the marker."""
        matcher = llguidance.LLMatcher(self._vocabulary.tokenizer, self._grammar)
        self._matcher = matcher
        if rest and not matcher.consume_tokens(self._vocabulary.tokenizer.tokenize_str(rest)):
            self._matcher = None
        self._failed()
        self._ids = []

    def _failed(self) -> bool:
        if self._matcher is None or not self._matcher.is_error():
            return False
        log.warning("a tool call is not constrained: %s", self._matcher.get_error())
        self._matcher = None
        return True


class NoCallFirst:
    """The answer does not begin with a tool call; after its first id anything goes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._mask: Sequence[bool] | None = vocabulary.not_opening

    def allowed(self) -> Sequence[bool] | None:
        return self._mask

    def accept(self, id: int) -> None:
        self._mask = None


def grammar(tools: Sequence[Mapping[str, Any]]) -> str:
    """What may follow `<tool_call>`, in the Lark dialect of llguidance."""
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool["function"]["name"]},
                "arguments": tool["function"].get("parameters") or {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    # Else nothing would keep a model from writing white space for ever.
    spaces = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    schema = orjson.dumps({"anyOf": calls, "x-guidance": spaces}).decode()
    return f'start: "\\n"? call "\\n"? "{CLOSE}"\ncall: %json {schema}\n'
