"""Model servers on this machine: Ollama, LM Studio and vLLM at their usual addresses."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from agent.models.endpoint import ADDRESSES
from agent.models.windows import window_of

TIMEOUT_S: Final = 0.3
_MAX_LIST: Final = 4 * 2**20

_NO_CHAT: Final = re.compile(
    r"embed|rerank|\bbge\b|whisper|\btts\b|\basr\b|clip|dall-e|image|diffusion|moderation|guard|minilm|realtime"
    r"|transcribe|audio|davinci|babbage|sora",
    re.IGNORECASE,
)
_FOR_CODE: Final = re.compile(r"cod(e|er|ex|ing)|devstral|gpt-oss|agent", re.IGNORECASE)
_INSTRUCTED: Final = re.compile(r"instruct|chat|\bit\b|hermes|qwen3|gpt|llama3|mistral|gemma", re.IGNORECASE)
_BILLIONS: Final = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A model server that answered. `models` are its chat models, the most suitable one first."""

    provider: str
    base_url: str
    models: tuple[str, ...]
    windows: Mapping[str, int]


async def discover(addresses: Mapping[str, str] = ADDRESSES, timeout_s: float = TIMEOUT_S) -> list[Found]:
    """The servers that answer within `timeout_s`, asked all at once, in the order of `addresses`."""
    found = await asyncio.gather(*(_ask(name, url, timeout_s) for name, url in addresses.items()))
    return [server for server in found if server is not None]


def suitable(entries: Sequence[Mapping[str, Any]], loaded: frozenset[str] = frozenset()) -> list[str]:
    """Names of the chat models among the entries of a `/models` list, the most suitable first.

    A model that is loaded already comes first; more than 40 B parameters come last (they rarely run well
    beside an editor); then those made for code, the instructed ones, and of equals the largest.
    """
    names = [entry["id"] for entry in entries if isinstance(entry.get("id"), str)]
    chat = [name for name in dict.fromkeys(names) if not _NO_CHAT.search(name)]

    def rank(name: str) -> tuple[bool, bool, bool, bool, float]:
        size = max((float(number) for number in _BILLIONS.findall(name)), default=0.0)
        code, instructed = _FOR_CODE.search(name), _INSTRUCTED.search(name)
        return name not in loaded, size > 40, code is None, instructed is None, -size

    return sorted(chat, key=rank)


async def _ask(provider: str, base_url: str, timeout_s: float) -> Found | None:
    try:
        async with asyncio.timeout(timeout_s):
            answer, running = await asyncio.gather(
                _get(f"{base_url}/models"), _get(_RUNNING[provider](base_url)), return_exceptions=True
            )
    except TimeoutError:
        return None
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        return None
    entries = [entry for entry in entries if isinstance(entry, dict)]
    models = suitable(entries, _loaded(running))
    if not models:
        return None
    windows = {entry["id"]: window for entry in entries if "id" in entry and (window := window_of(entry))}
    return Found(provider, base_url, tuple(models), windows)


_RUNNING: Final = {
    "ollama": lambda base_url: base_url.removesuffix("/v1") + "/api/ps",
    "lmstudio": lambda base_url: base_url.removesuffix("/v1") + "/api/v0/models",
    "vllm": lambda base_url: base_url + "/models",
}
"""Where each says which models are loaded (vLLM serves what it has loaded)."""


def _loaded(running: Any) -> frozenset[str]:
    if not isinstance(running, dict):
        return frozenset()
    names: list[Any] = [
        entry.get("name") or entry.get("id")
        for entry in running.get("models") or running.get("data") or ()
        if isinstance(entry, dict) and entry.get("state", "loaded") == "loaded"
    ]
    return frozenset(name for name in names if isinstance(name, str))


async def _get(url: str) -> Any:
    """A small JSON document over plain HTTP: one socket, no client library to import.

    Raises:
        OSError: nobody answers there. ValueError: the answer is no JSON document.
    """
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, limit=_MAX_LIST)
    try:
        # HTTP/1.0: the answer is not chunked, and ends with the connection or at its stated length.
        writer.write(f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        data = b""
        while len(data) < _MAX_LIST and not _whole(data):
            piece = await reader.read(_MAX_LIST)
            if not piece:
                break
            data += piece
    finally:
        writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise ValueError(f"{url} answered with status {status}")
    return orjson.loads(body)


def _whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return bool(end) and length is not None and len(body) >= int(length.group(1))
