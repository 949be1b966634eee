"""Where a model's requests go and which key they carry."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from agent.models.settings import ModelSettings

OPENAI: Final = "https://api.openai.com/v1"

ADDRESSES: Final = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}
"""Where a provider listens unless its table says otherwise."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address with its key. `key` is None where there is none; it never shows in a repr."""

    base_url: str
    key: str | None = field(repr=False)
    key_env: str | None
    """The variable that the key comes from, or would come from; None where none is expected."""

    @property
    def shown(self) -> str:
        """The address without user name and password, for messages."""
        parts = urlsplit(self.base_url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def port(self) -> int | None:
        """Raises `ValueError` where the address names something that cannot be a port."""
        return urlsplit(self.base_url).port

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def hosted_by_openai(self) -> bool:
        return self.host == "api.openai.com" or self.host.endswith((".openai.com", ".openai.azure.com"))


def endpoint_of(settings: ModelSettings, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """The endpoint that a model's settings mean.

    `OPENAI_API_KEY` is sent only to OpenAI and to the address in `OPENAI_BASE_URL`: a table that names
    another address names its own `api_key_env`.
    """
    usual = environ.get("OPENAI_BASE_URL") or OPENAI
    if settings.provider in ADDRESSES:
        usual_of_provider = ADDRESSES[settings.provider]
    else:
        usual_of_provider = usual
    base_url = (settings.base_url or usual_of_provider).rstrip("/")
    key_env = settings.api_key_env
    if key_env is None:
        origin = _origin(base_url)
        if origin in (_origin(usual), _origin(OPENAI)):
            key_env = "OPENAI_API_KEY"
    key = environ.get(key_env, "").strip() if key_env else ""
    return Endpoint(base_url=base_url, key=key or None, key_env=key_env)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()
