"""The `[models.NAME]` table: how one model is reached and what it costs."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.models.client import Price

Provider = Literal["openai", "ollama", "lmstudio", "vllm", "local", "recorded"]
"""`openai` is any OpenAI-compatible endpoint; the next three are such endpoints with a usual address."""


class ModelSettings(BaseModel):
    """One model. Only `model` is needed for a hosted one; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: Provider = "openai"
    model: str = ""
    """The endpoint's name of the model; a path for `local`; a session for `recorded`."""
    base_url: str | None = None
    """Ends in `/v1` for most endpoints. None = the provider's usual address, or `OPENAI_BASE_URL`."""
    api_key_env: str | None = None
    """The environment variable that holds the key; keys themselves are never configured."""
    context_window: int | None = Field(default=None, gt=0)
    """Tokens. None = asked of the endpoint, else a table of known models, else 128k."""
    max_output_tokens: int | None = Field(default=None, gt=0)
    price: Price | None = None
    """US dollars per million tokens: `{input, cached, output}`."""
    profile: Literal["full", "compact"] | None = None
    """None = `compact` where the window is under 16k tokens."""
    temperature: float | None = Field(default=None, ge=0)
    token_ids: bool | None = None
    """Ask for token ids and log-probs. None = only of vLLM."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request body, as the endpoint knows them."""
    connect_s: float = Field(default=10, gt=0)
    first_token_s: float = Field(default=300, gt=0)
    """How long the endpoint may take until its first token."""
    between_tokens_s: float = Field(default=120, gt=0)
    tries: int = Field(default=6, ge=1, le=20)
    """How often one request is made, the first included, before it fails."""
