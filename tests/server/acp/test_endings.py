"""Sessions that end while others ask for them, and what a session too large or a full store does to them."""

import asyncio
from typing import Any

import pytest

from server.store import SessionBusy, Store, StoreFull
from tests.support.acp import AcpClient, RpcFailure

TALK = [{"type": "text", "text": "talk"}]
SLOW = [{"text": "word " * 2000, "delay_ms": 5}]


async def outcome(client: AcpClient, id: int) -> str:
    """ "ok", or the message of the error."""
    answer = await asyncio.wait_for(client._pending[id], 20)
    return answer["error"]["message"] if "error" in answer else "ok"


@pytest.mark.parametrize("end", ["session/delete", "session/close"])
async def test_whatever_meets_the_end_of_a_session_is_answered(serve: Any, end: str) -> None:
    server, _ = await serve(SLOW)
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        methods: list[tuple[str, dict[str, Any]]] = [
            ("session/prompt", {"prompt": TALK}),
            (end, {}),
            ("_etude/attach", {"afterSeq": 0}),
            ("session/prompt", {"prompt": TALK}),
            (end, {}),
            ("_etude/steer", {"prompt": TALK}),
            ("session/set_mode", {"modeId": "ask"}),
            (end, {}),
        ]
        sent = [await client.send(method, sessionId=session, **params) for method, params in methods]
        said = [await outcome(client, id) for id in sent]
        known = {"ok", "the session was closed"}
        assert {text for text in said if not text.startswith("Unknown session")} <= known, said
        assert not any("defect" in text for text in said)
        for _ in range(3):  # a prompt that came in between may have opened it again
            if session in server.hub.sessions:
                await client.call("session/close", sessionId=session)
        if end == "session/close":
            await client.call("session/delete", sessionId=session)
        with pytest.raises(RpcFailure, match="Unknown session"):
            await client.call("_etude/attach", sessionId=session)


async def test_a_client_that_closes_a_session_and_leaves_leaves_nothing_behind(serve: Any) -> None:
    server, _ = await serve(SLOW)
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.send("session/prompt", sessionId=session, prompt=TALK)
        await client.until(lambda c: len(c.updates("agent_message_chunk")) > 3)
        await client.send("session/close", sessionId=session)
        await asyncio.sleep(0.001)
        client.abort()
    async with server.client() as client, asyncio.timeout(20):
        await client.call("session/resume", sessionId=session, cwd="/", mcpServers=[])
        await client.call("session/set_mode", sessionId=session, modeId="ask")
        await client.call("session/delete", sessionId=session)
        assert session not in server.hub.sessions
        assert await server.store.sessions() == []


async def test_a_session_of_another_server_is_not_deleted_and_says_why(serve: Any) -> None:
    server, _ = await serve()
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        other = await Store.open(f"sqlite:///{server.folder / 'etude.db'}")
        try:
            lease = await other.lease(session)
            with pytest.raises(RpcFailure, match="is open in process"):
                await client.call("session/delete", sessionId=session)
            with pytest.raises(SessionBusy):
                await server.store.delete_session(session)
            await lease.release()
        finally:
            await other.close()
        assert await client.call("session/delete", sessionId=session) == {}


async def test_a_full_store_is_no_defect(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = await serve(["ok"])

    async def full(*_: Any) -> str:
        raise StoreFull("the disk is full: free some space")

    async with server.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(server.store, "create_session", full)
            with pytest.raises(RpcFailure, match="disk is full"):
                await client.new_session(server.workspace)
        assert await client.new_session(server.workspace)


async def test_a_very_long_prompt_can_be_read_again(serve: Any) -> None:
    server, _ = await serve(["ok"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        for size in (9 << 20, 15 << 20, 10):
            await client.prompt(session, "x" * size)
        last = (await server.store.session(session)).last_seq
    async with server.client() as client:
        await client.call("_etude/attach", sessionId=session, afterSeq=0)
        await client.until(
            lambda c: c.closed or any(p.get("seq") == last for p in c.of("_etude/event") + c.updates())
        )
        assert client.closed is None
