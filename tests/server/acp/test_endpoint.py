"""The WebSocket: who is refused before it is accepted, what it survives, how it ends."""

import asyncio
import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
import websockets

from server import hub as hub_module
from server.acp import connection as wire
from tests.support.acp import AcpClient, RpcFailure
from tests.support.inprocess import TOKEN
from tests.support.received import Received

GOOD = {"Authorization": f"Bearer {TOKEN}"}
TALK = [{"type": "text", "text": "talk"}]


def socket_url(server: Any) -> str:
    return server.url.replace("http", "ws", 1) + "/acp"


async def status_of(server: Any, headers: dict[str, str], **options: Any) -> int:
    """The HTTP status of an attempt to connect; 101 when it is accepted."""
    try:
        async with websockets.connect(socket_url(server), additional_headers=headers, **options):
            return 101
    except websockets.InvalidStatus as error:
        return error.response.status_code


@pytest.mark.case("agent-28")
async def test_a_foreign_page_a_rebound_name_and_a_wrong_token_are_refused_before_accept(serve: Any) -> None:
    server, _ = await serve()
    assert await status_of(server, GOOD) == 101
    assert await status_of(server, {}) == 401
    assert await status_of(server, {"Authorization": "Bearer wrong"}) == 401
    assert await status_of(server, {"Authorization": f"Basic {TOKEN}"}) == 401
    assert await status_of(server, GOOD, origin="http://evil.example") == 403
    assert await status_of(server, GOOD, origin="null") == 403
    assert await status_of(server, GOOD, origin=server.url) == 101
    assert await status_of(server, GOOD, origin="vscode-webview://abc") == 101
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(websockets.InvalidStatus) as refusal:
        async with websockets.connect(
            f"ws://rebound.example:{port}/acp", host="127.0.0.1", port=port, additional_headers=GOOD
        ):
            pass
    assert refusal.value.response.status_code == 403
    assert 'etude_refused_total{status="403"} 3.0' in server.hub.metrics.text().decode()


async def test_the_token_may_come_as_a_subprotocol(serve: Any) -> None:
    server, _ = await serve()
    offered: Any = ["acp.v1", f"bearer.{TOKEN}"]
    async with websockets.connect(socket_url(server), subprotocols=offered) as socket:
        assert socket.subprotocol == "acp.v1"
    assert await status_of(server, {}, subprotocols=["acp.v1", "bearer.wrong"]) == 401
    assert await status_of(server, {}, subprotocols=[f"bearer.{TOKEN}"]) == 401


async def test_a_named_token_is_a_user_of_its_own(serve: Any) -> None:
    server, _ = await serve()
    alice = server.app.state.tokens.add("alice")
    async with server.client() as local, server.client(token=alice) as other:
        session = await local.new_session(server.workspace)
        assert (await other.call("session/list"))["sessions"] == []
        for method, params in (
            ("_etude/attach", {"afterSeq": 0}),
            ("session/load", {"cwd": "/", "mcpServers": []}),
            ("session/prompt", {"prompt": TALK}),
            ("session/set_mode", {"modeId": "full"}),
            ("session/delete", {}),
        ):
            with pytest.raises(RpcFailure, match="Unknown session"):
                await other.call(method, sessionId=session, **params)
        assert len((await local.call("session/list"))["sessions"]) == 1


async def test_refusals_are_not_logged_as_errors(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    server, _ = await serve()
    await status_of(server, {})
    await asyncio.sleep(0.05)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_plain_http_at_the_path_of_the_socket_is_told_to_upgrade(serve: Any) -> None:
    server, _ = await serve()

    def get() -> int:
        try:
            return urllib.request.urlopen(server.url + "/acp").status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    assert await asyncio.to_thread(get) == 426


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", -32700),
        (b"binary", -32600),
        ("[]", -32600),
        ('{"id":[1],"result":{}}', -32600),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, -32700),
        ('{"a":' * 251 + "1" + "}" * 251, -32600),
        (" " * (wire.SOFT_LIMIT + 1), -32600),
    ],
    ids=["no JSON", "binary", "array", "odd id", "nested", "stored but not sent", "large"],
)
async def test_a_hostile_frame_harms_nobody(serve: Any, frame: str | bytes, code: int) -> None:
    server, _ = await serve()
    async with server.client() as client, server.client() as other:
        await client.socket.send(frame)
        answer = await client.until(
            lambda c: [f.message for f in c.frames if f.message.get("error") and f.message.get("id") is None]
        )
        assert answer[0]["error"]["code"] == code
        assert "sessions" in await client.call("session/list")
        assert "sessions" in await other.call("session/list")


async def test_a_frame_over_the_hard_limit_closes_with_1009(serve: Any) -> None:
    server, _ = await serve()
    async with server.client() as client:
        with pytest.raises((websockets.ConnectionClosed, ConnectionError)):
            await client.socket.send("x" * ((64 << 20) + 1))
            await client.call("session/list")
        await client.until(lambda c: c.closed is not None)
        assert client.closed in (1009, 1006)  # the client may still be writing when it is cut
    async with server.client() as again:
        assert "sessions" in await again.call("session/list")


async def test_a_call_before_initialize_is_refused(serve: Any) -> None:
    server, _ = await serve()
    async with websockets.connect(socket_url(server), additional_headers=GOOD) as socket:
        await socket.send('{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}')
        assert json.loads(await socket.recv())["error"]["code"] == -32600


async def test_a_stop_says_1001_and_ends_the_turn(serve: Any) -> None:
    server, _ = await serve([{"text": "word " * 2000, "delay_ms": 10}])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.send("session/prompt", sessionId=session, prompt=TALK)
        await client.until(lambda c: len(c.updates("agent_message_chunk")) > 3)
        server.server.should_exit = True
        await client.until(lambda c: c.closed, timeout=10)
        assert client.closed == 1001
        await server.task
        events = await server.store.all_events(session)
        assert (events[-1].type, events[-1].data["reason"]) == ("turn.ended", "interrupted")
        assert (await server.store.session(session)).owner is None


@pytest.mark.case("agent-2")
async def test_a_turn_outlives_its_client_and_is_there_when_it_comes_back(serve: Any) -> None:
    server, _ = await serve([{"text": "word " * 100, "delay_ms": 5}])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.send("session/prompt", sessionId=session, prompt=TALK)
        await client.until(lambda c: len(c.updates("agent_message_chunk")) > 5)
        client.abort()
        await client.until(lambda c: c.closed is not None)
        before = Received.of(client, session).last
    async with server.client() as client:
        await client.call("_etude/attach", sessionId=session, afterSeq=before)
        await client.until(ended)
        events = await server.store.all_events(session)
        assert Received.of(client, session, before).last == events[-1].seq
        assert events[-1].data["reason"] == "end_turn"


def ended(client: AcpClient) -> bool:
    return any(params["type"] == "turn.ended" for params in client.of("_etude/event"))


@pytest.mark.case("agent-2")
async def test_heartbeats_say_how_far_each_session_is(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "HEARTBEAT_S", 0.05)
    server, _ = await serve()
    async with server.client() as client, server.client(etude=False) as plain:
        session = await client.new_session(server.workspace)
        await client.until(lambda c: {"sessions": {session: 1}} in c.of("_etude/heartbeat"))
        assert not plain.of("_etude/heartbeat")


@pytest.mark.case("agent-2")
async def test_a_client_that_answered_heartbeats_and_falls_silent_is_closed_with_4408(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "HEARTBEAT_S", 0.1)
    server, _ = await serve()
    async with server.client() as answering, server.client() as never:
        await answering.notify("_etude/heartbeat")
        await answering.until(lambda c: c.closed)
        assert answering.closed == 4408
        assert never.closed is None
        assert len(never.of("_etude/heartbeat")) >= 3


async def test_a_slow_client_is_closed_with_4429_and_loses_nothing(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_BYTES", 200_000)
    server, _ = await serve([{"text": "x" * 12_000_000, "chunk": 40_000}])
    async with server.client() as good:
        session = await good.new_session(server.workspace)
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.setblocking(False)
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        await asyncio.get_running_loop().sock_connect(narrow, address)
        async with websockets.connect(
            socket_url(server), sock=narrow, additional_headers=GOOD, max_queue=1, compression=None
        ) as slow:
            for id, method, params in (
                (1, "initialize", {"protocolVersion": 1}),
                (2, "_etude/attach", {"sessionId": session, "afterSeq": 0}),
            ):
                await slow.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
                await slow.recv()
            prompting = asyncio.create_task(good.call("session/prompt", sessionId=session, prompt=TALK))
            frames: list[dict[str, Any]] = []
            with pytest.raises(websockets.ConnectionClosed):
                async with asyncio.timeout(40):
                    while True:
                        frames.append(json.loads(await slow.recv()))
                        await asyncio.sleep(0.02)
            assert slow.close_code == 4429
        received = Received(session)
        received.take(frames)
        await prompting
        assert good.closed is None
        last = (await server.store.session(session)).last_seq
        assert Received.of(good, session).last == last
    async with server.client() as again:
        await again.call("_etude/attach", sessionId=session, afterSeq=received.last)
        await again.until(lambda c: Received.of(c, session, received.last).last == last)
