"""Parameters of the methods a client may call: what we need of them, checked.

The Python SDK has models for the standard ones; importing them costs more than the whole rest of the
server. Unknown fields are ignored, as the protocol asks.
"""

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from agent.content import plain_text
from agent.events import Mode

MAX_BLOCKS = 1000


class Params(BaseModel):
    """Names are camelCase on the wire. `meta` is `_meta.etude`, or empty."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)

    raw_meta: dict[str, Any] | None = Field(default=None, alias="_meta")

    @property
    def meta(self) -> dict[str, Any]:
        ours = (self.raw_meta or {}).get("etude")
        return ours if isinstance(ours, dict) else {}


def _absolute(path: str) -> str:
    if not PurePath(path).is_absolute():
        raise ValueError("must be an absolute path")
    if "\0" in path:
        raise ValueError("must not contain a null character")
    return path


def _block(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    expected = {"text": "text", "image": "data", "audio": "data", "resource_link": "uri"}.get(str(kind))
    if kind == "resource":
        if not isinstance(block.get("resource"), dict):
            raise ValueError("a resource block needs a resource")
    elif expected is None:
        raise ValueError("type must be text, image, audio, resource_link or resource")
    elif not isinstance(block.get(expected), str):
        raise ValueError(f"a {kind} block needs a string {expected!r}")
    return block


AbsolutePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_absolute)]
SessionId = Annotated[str, Field(min_length=1, max_length=64)]
MessageId = Annotated[str, Field(min_length=1, max_length=128)]
Block = Annotated[dict[str, Any], AfterValidator(_block)]


class Initialize(Params):
    protocol_version: int = Field(ge=0, le=65535)
    client_capabilities: dict[str, Any] | None = None
    client_info: dict[str, Any] | None = None


class Authenticate(Params):
    method_id: str = ""


class NewSession(Params):
    cwd: AbsolutePath
    mcp_servers: list[dict[str, Any]] = Field(default_factory=list, max_length=100)


class OpenSession(NewSession):
    """`session/load` and `session/resume`: the folder is the one the session was made for."""

    session_id: SessionId
    cwd: str = ""  # pyright: ignore[reportIncompatibleVariableOverride] - what a client says is not used


class ListSessions(Params):
    cwd: str | None = None
    cursor: str | None = None


class OfSession(Params):
    session_id: SessionId


class Ping(Params):
    """A heartbeat of the client; that it came is all that matters."""


class SendPrompt(OfSession):
    prompt: list[Block] = Field(min_length=1, max_length=MAX_BLOCKS)

    @property
    def text(self) -> str:
        return plain_text(self.prompt)

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """What a plain text does not say: nothing for a prompt of one text block."""
        return [] if len(self.prompt) == 1 and self.prompt[0]["type"] == "text" else self.prompt


class Steer(SendPrompt):
    client_message_id: MessageId | None = None
    expected_turn: int | None = None


class SetMode(OfSession):
    mode_id: Mode


class SetConfigOption(OfSession):
    config_id: Literal["mode", "model"]
    value: Annotated[str, Field(min_length=1, max_length=500)]


class Attach(OfSession):
    after_seq: int = Field(default=0, ge=0)


class Feedback(OfSession):
    target: dict[str, Any]
    kind: Literal["accept", "reject", "undo", "thumbs_up", "thumbs_down", "comment"]
    comment: Annotated[str, Field(max_length=20_000)] | None = None
    preview: bool = False
    """Of a `reject` or `undo`: only say what it would change."""
