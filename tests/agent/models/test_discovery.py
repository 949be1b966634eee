"""Model servers on this machine."""

import asyncio
import contextlib
import socket
import time

import pytest

from agent.models.discovery import discover, suitable
from tests.support.scripted_model import ScriptedModel


def entries(*names: str) -> list[dict[str, str]]:
    return [{"id": name} for name in names]


async def test_servers_are_found_in_order_with_their_windows() -> None:
    ps = {"models": [{"name": "scripted", "context_length": 4096}]}
    with ScriptedModel(["x"], window=9000) as first, ScriptedModel(["x"], pages={"/api/ps": ps}) as second:
        found = await discover({"vllm": first.base_url, "ollama": second.base_url})
    assert [(server.provider, server.models) for server in found] == [
        ("vllm", ("scripted",)),
        ("ollama", ("scripted",)),
    ]
    assert found[0].windows == {"scripted": 9000}


async def test_silence_costs_no_more_than_the_time_limit() -> None:
    with contextlib.ExitStack() as stack:
        addresses = {}
        for name in ("ollama", "lmstudio", "vllm"):
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            addresses[name] = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        begun = time.monotonic()
        assert await discover(addresses) == []
        assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\n\r\n[1]",
        b'HTTP/1.1 200 OK\r\n\r\n{"data": "x"}',
        b'HTTP/1.1 200 OK\r\n\r\n{"data": [1, {"id": 3}, {}]}',
        b'HTTP/1.1 401 No\r\n\r\n{"data": [{"id": "x"}]}',
    ],
)
async def test_other_servers_on_those_ports_are_left_alone(answer: bytes) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await discover({"vllm": f"http://127.0.0.1:{port}/v1"}) == []


def test_models_that_do_not_chat_are_never_chosen() -> None:
    names = ("nomic-embed-text", "whisper-1", "bge-m3", "dall-e-3", "tts-1", "llama-guard3")
    assert suitable(entries(*names)) == []


def test_the_most_suitable_model_comes_first() -> None:
    names = ("llama3.2:1b", "qwen2.5-coder:7b", "qwen2.5-coder:1.5b", "qwen3-coder:480b", "phi:2b")
    found = suitable(entries(*names))
    assert found[:2] == ["qwen2.5-coder:7b", "qwen2.5-coder:1.5b"]
    assert found[-1] == "qwen3-coder:480b"
    assert suitable(entries(*names), frozenset({"phi:2b"}))[0] == "phi:2b"
