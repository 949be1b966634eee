"""A model folder opened: the engine, and what reads and writes its tokens."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer

from agent.engine.grammar import NoCallFirst, ToolCallConstraint, Vocabulary
from agent.engine.protocol import Constraint
from agent.engine.scheduler import EngineSettings
from agent.engine.torch_engine import TorchEngine
from agent.models.routing import Router
from agent.rendering.chatml import ChatML
from agent.rendering.codec import Codec
from agent.rendering.conversation import Conversations, Prompt
from agent.rendering.renderer import Message, Renderer
from agent.rendering.routed import RoutedChatML
from agent.rendering.template import Template


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """`router` is there for a model that calls no tools by itself."""

    engine: TorchEngine
    codec: Codec
    renderer: Renderer
    conversations: Conversations
    vocabulary: Vocabulary
    router: Router | None

    def lasting(self, prompt: Prompt, messages: Sequence[Message], tools: Sequence[Message]) -> int:
        """How many of a prompt's first ids are the system message's and the tools'; 0 where the conversation
        goes on, for whoever began it has seen to them."""
        if prompt.context != "start" or not messages or messages[0].get("role") != "system":
            return 0
        try:
            head = self.renderer.fresh(messages[:1], tools)
        except ValueError:  # a template that wants a user's message
            return 0
        pairs = enumerate(zip(head, prompt.ids, strict=False))
        return next((at for at, (one, other) in pairs if one != other), min(len(head), len(prompt.ids)))

    def constraint(self, tools: Sequence[dict[str, Any]], last: str | None) -> Constraint | None:
        """Keeps the calls of one answer to these tools' schemas. `last` is the role of the last message: a
        routed model that has got a result must answer; left alone it would repeat the call."""
        if not tools:
            return None
        if self.router and last == "tool":
            return NoCallFirst(self.vocabulary)
        return ToolCallConstraint(self.vocabulary, tools, self.codec.decode)


def open_folder(folder: Path, *, routed: bool, settings: EngineSettings | None = None) -> OpenedModel:
    """Open a Hugging Face folder; the weights are loaded by the engine's `start`. Blocks for a second.

    Raises:
        OSError, ValueError: something that a chat model needs is not there; the message says what.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    codec = Codec(folder / "tokenizer.json")
    ends = _end_ids(folder, config)
    renderer: Renderer
    if ChatML.fits(codec):
        renderer = (RoutedChatML if routed else ChatML)(codec, ends)
    else:
        renderer = _template(folder, codec, ends)
    size = (config.get("text_config") or config)["vocab_size"]
    engine = TorchEngine(folder, settings=settings)
    return OpenedModel(
        engine=engine,
        codec=codec,
        renderer=renderer,
        conversations=Conversations(renderer),
        vocabulary=Vocabulary(codec.json(), size, min(renderer.end_ids)),
        router=Router(codec, engine.score) if routed else None,
    )


def _end_ids(folder: Path, config: dict[str, Any]) -> list[int]:
    """The ids that end an answer, by the generation configuration, else by the model's."""
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    return ends if isinstance(ends, list) else [] if ends is None else [ends]


def _template(folder: Path, codec: Codec, end_ids: list[int]) -> Template:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not tokenizer.chat_template:
        raise ValueError(f"{folder} has no chat template: it is not a chat model, or its template is missing")
    if not end_ids:
        raise ValueError(f"{folder} does not say which token ends an answer (eos_token_id)")

    def apply(messages: list[Message], tools: list[Message], opening: bool) -> str:
        try:
            text = tokenizer.apply_chat_template(
                messages, tools=tools or None, add_generation_prompt=opening, tokenize=False
            )
        except TemplateError as error:
            raise ValueError(f"the chat template of {folder} refuses this conversation: {error}") from error
        return str(text)

    ends = [token for id in end_ids if (token := codec.token(id))]
    return Template(codec, apply, ends, tokenizer.all_special_tokens, end_ids)
