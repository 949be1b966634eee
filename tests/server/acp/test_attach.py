"""Attaching: exactly the missed events, in order, none twice, whatever was cut when."""

import asyncio
import random
import time
from typing import Any

import pytest

from agent.events import Draft, Event, Live, now
from server.acp import connection as wire
from server.acp.subscriber import Track
from tests.support.acp import AcpClient
from tests.support.received import Received

GO = [{"type": "text", "text": "go"}]
SCRIPT = [
    {
        "text": "I will look at the file first. " * 8,
        "delay_ms": 2,
        "calls": [{"name": "read", "arguments": {"path": "hello.py"}}],
    },
    {
        "thought": "It says helo. " * 5,
        "text": "Now I change it. " * 8,
        "delay_ms": 2,
        "calls": [
            {
                "name": "edit",
                "arguments": {"path": "hello.py", "edits": [{"old": "'helo'", "new": "'hello'"}]},
            }
        ],
    },
    {
        "calls": [
            {"name": "shell", "arguments": {"command": "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done"}}
        ]
    },
    {"text": "Done, with ümläuts and 🎈 balloons. " * 12, "delay_ms": 2},
]


async def run(client: AcpClient, session: str) -> None:
    await client.call("session/prompt", sessionId=session, prompt=GO)


def texts(events: list[Any]) -> dict[str, str]:
    """The messages as the log holds them."""
    found: dict[str, str] = {}
    for event in events:
        if event.type in ("text", "thought", "tool.output"):
            id = event.data.get("messageId") or event.data["call_id"]
            found[id] = found.get(id, "")[: event.data["offset"]] + event.data["text"]
    return found


@pytest.mark.case("agent-1")
async def test_two_clients_see_the_same_events_each_exactly_once(serve: Any) -> None:
    server, _ = await serve(SCRIPT)
    async with server.client() as one, server.client() as two:
        session = await one.new_session(server.workspace)
        await two.call("_etude/attach", sessionId=session, afterSeq=0)
        await run(one, session)
        events = await server.store.all_events(session)
        for client in (one, two):
            received = Received.of(client, session)
            assert received.last == events[-1].seq
            assert received.texts == texts(events)
            assert received.stored == {id: len(text) for id, text in texts(events).items()}
        assert (server.workspace / "hello.py").read_text() == "def greet():\n    return 'hello'\n"


@pytest.mark.case("agent-1")
@pytest.mark.parametrize("seed", range(4))
async def test_reconnects_at_random_moments_lose_nothing_and_repeat_nothing(serve: Any, seed: int) -> None:
    server, _ = await serve(SCRIPT)
    chance = random.Random(seed)
    async with server.client() as steady:
        session = await steady.new_session(server.workspace)
        turn = asyncio.create_task(run(steady, session))
        received, cuts = Received(session), 0
        while not turn.done():
            async with server.client() as client:
                await client.call("_etude/attach", sessionId=session, afterSeq=received.last)
                await asyncio.sleep(chance.random() * 0.15)
                client.abort()
                cuts += 1
            # What was live and not stored is forgotten with the connection: it comes again.
            for id, text in received.texts.items():
                received.texts[id] = text[: received.stored.get(id, 0)]
            received.take(frame.message for frame in client.frames)
        await turn
        for id, text in received.texts.items():
            received.texts[id] = text[: received.stored.get(id, 0)]
        async with server.client() as client:
            await client.call("_etude/attach", sessionId=session, afterSeq=received.last)
            events = await server.store.all_events(session)
            await client.until(lambda c: _seq(c, received.last) == events[-1].seq)
            received.take(frame.message for frame in client.frames)
    assert cuts > 3
    assert received.last == events[-1].seq
    assert received.texts == texts(events)


def _seq(client: AcpClient, start: int) -> int:
    last = start
    for frame in client.frames:
        params = frame.message.get("params") or {}
        mark = params.get("_meta", {}).get("etude", params)
        last = max(last, mark.get("seq") or 0)
    return last


@pytest.mark.case("agent-1")
async def test_every_offset_is_a_place_to_go_on_from(serve: Any) -> None:
    server, _ = await serve(SCRIPT)
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await run(client, session)
    events = await server.store.all_events(session)
    async with server.client() as client:
        await client.call("_etude/attach", sessionId=session, afterSeq=0)
        await client.until(lambda c: _seq(c, 0) == events[-1].seq)
        whole = frames(client, session)
    for after in range(1, len(events) + 1):
        async with server.client() as client:
            answer = await client.call("_etude/attach", sessionId=session, afterSeq=after)
            assert answer["lastSeq"] == events[-1].seq
            await client.until(lambda c, after=after: _seq(c, after) == events[-1].seq)
            assert frames(client, session) == [frame for frame in whole if _mark(frame)["seq"] > after]


def frames(client: AcpClient, session: str) -> list[Any]:
    """What came of a session, without the running cost (known only to who saw everything)."""
    return [
        frame.message
        for frame in client.frames
        if (frame.message.get("params") or {}).get("sessionId") == session
    ]


def _mark(message: dict[str, Any]) -> dict[str, Any]:
    return message["params"].get("_meta", {}).get("etude", message["params"])


async def test_an_attach_in_the_middle_of_a_message_gets_its_characters_so_far(serve: Any) -> None:
    server, _ = await serve([{"text": "word " * 60, "delay_ms": 5}])
    async with server.client() as one:
        session = await one.new_session(server.workspace)
        turn = asyncio.create_task(run(one, session))
        await one.until(lambda c: len(c.updates("agent_message_chunk")) > 20)
        async with server.client() as two:
            await two.call("_etude/attach", sessionId=session, afterSeq=0)
            await turn
            await two.until(lambda c: _seq(c, 0) == _seq(one, 0))
            assert Received.of(two, session).texts == Received.of(one, session).texts
            assert any(_mark({"params": params}).get("live") for params in two.updates("agent_message_chunk"))


async def test_a_cursor_beyond_the_log_starts_over(serve: Any) -> None:
    server, _ = await serve(["Hello."])
    async with server.client() as client, server.client() as other:
        session = await client.new_session(server.workspace)
        await run(client, session)
        answer = await other.call("_etude/attach", sessionId=session, afterSeq=9999)
        assert answer["reset"] is True
        await other.until(lambda c: _seq(c, 0) == answer["lastSeq"])
        assert Received.of(other, session).last == answer["lastSeq"]


async def test_attaching_again_on_one_connection_starts_from_where_it_says(serve: Any) -> None:
    server, _ = await serve(["Hello."])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await run(client, session)
        client.frames.clear()
        answer = await client.call("_etude/attach", sessionId=session, afterSeq=3)
        await client.until(lambda c: _seq(c, 3) == answer["lastSeq"])
        assert Received.of(client, session, after=3).last == answer["lastSeq"]


async def test_the_answer_says_what_the_session_is_like(serve: Any) -> None:
    server, _ = await serve([{"text": "word " * 60, "delay_ms": 5}])
    async with server.client() as client, server.client() as other:
        session = await client.new_session(server.workspace)
        turn = asyncio.create_task(run(client, session))
        await client.until(lambda c: c.updates("agent_message_chunk"))
        answer = await other.call("_etude/attach", sessionId=session, afterSeq=0)
        assert answer["state"]["running"] is True
        assert (answer["state"]["turn"], answer["state"]["mode"]) == (1, "full")
        assert answer["state"]["cwd"] == str(server.workspace)
        assert answer["term"] >= 1
        await turn


async def test_a_plain_client_gets_updates_only_and_each_character_once(serve: Any) -> None:
    server, _ = await serve(SCRIPT)
    async with server.client(etude=False) as plain, server.client(etude=False) as other:
        session = await plain.new_session(server.workspace)
        await other.call("session/resume", sessionId=session, cwd="/", mcpServers=[])
        await run(plain, session)
        events = await server.store.all_events(session)
        await other.until(lambda c: _seq(c, 0) >= events[-2].seq)
        for client in (plain, other):
            methods = {frame.message.get("method") for frame in client.frames} - {None}
            assert methods == {"session/update"}
            pieces: dict[str, str] = {}
            for kind in ("agent_message_chunk", "agent_thought_chunk"):
                for params in client.updates(kind):
                    update = params["update"]
                    pieces[update["messageId"]] = (
                        pieces.get(update["messageId"], "") + update["content"]["text"]
                    )
            assert pieces == {id: text for id, text in texts(events).items() if id in pieces}
            assert len(pieces) == 4
            outputs = [
                params["update"]["content"][0]["content"]["text"]
                for params in client.updates("tool_call_update")
                if params["update"].get("status") == "in_progress"
                and params["update"]["content"][0]["type"] == "content"
            ]
            assert outputs == sorted(outputs, key=len), "each update holds all output so far"
        assert not plain.updates("user_message_chunk"), "its own words are not repeated to it"
        assert len(other.updates("user_message_chunk")) == 1


async def test_loading_replays_the_conversation_before_the_answer(serve: Any) -> None:
    server, _ = await serve(SCRIPT)
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await run(client, session)
    async with server.client(etude=False) as plain:
        await plain.call("session/load", sessionId=session, cwd=str(server.workspace), mcpServers=[])
        assert "result" in plain.frames[-1].message
        kinds = [params["update"]["sessionUpdate"] for params in plain.updates()]
        assert kinds[0] == "user_message_chunk"
        assert {"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"} <= set(kinds)
        diffs = [
            item
            for params in plain.updates("tool_call_update")
            for item in params["update"].get("content", [])
            if item["type"] == "diff"
        ]
        assert (diffs[0]["oldText"], diffs[0]["newText"]) == (
            "def greet():\n    return 'helo'\n",
            "def greet():\n    return 'hello'\n",
        )
        assert diffs[0]["path"] == str(server.workspace / "hello.py")


@pytest.mark.case("agent-8")
async def test_the_first_frame_of_a_long_session_comes_at_once_and_its_replay_does_not_flood(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_FRAMES", 300)
    server, _ = await serve()
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        log = await server.store.lease(session)
        drafts = [
            Draft(type="text", data={"messageId": "m", "offset": 10 * k, "text": "0123456789"}, turn=1)
            for k in range(20_000)
        ]
        for start in range(0, len(drafts), 1000):
            await asyncio.gather(*[log.submit(draft) for draft in drafts[start : start + 1000]])
        await log.release()
    async with server.client() as client:
        started = time.monotonic()
        await client.call("_etude/attach", sessionId=session, afterSeq=0)
        await client.until(lambda c: c.of("_etude/event"))
        assert time.monotonic() - started < 1.0
        assert client.closed is None
        await client.until(lambda c: len(c.frames) >= 20_003, timeout=60)
        assert Received.of(client, session).last == 20_001


@pytest.mark.case("agent-4")
@pytest.mark.case("agent-5")
async def test_a_turn_that_a_crash_broke_off_is_closed_when_somebody_looks(serve: Any) -> None:
    server, _ = await serve(["after the crash"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        log = await server.store.lease(session)
        await log.submit(Draft(type="prompt", data={"message_id": "m1", "text": "go", "blocks": []}, turn=1))
        started = {"model": "scripted", "mode": "full", "profile": "full", "max_steps": 9}
        await log.submit(Draft(type="turn.started", data=started, turn=1))
        await log.submit(Draft(type="text", data={"messageId": "t", "offset": 0, "text": "I was"}, turn=1))
        queued = {"message_id": "m2", "text": "and then", "blocks": []}
        await log.submit(Draft(type="queued", data=queued, turn=1))
        await log.release()
        server.hub.sessions.clear()
    async with server.client() as client:
        answer = await client.call("_etude/attach", sessionId=session, afterSeq=0)
        assert answer["state"]["running"] is False
        ends = await client.until(
            lambda c: [e for e in c.of("_etude/event") if e["type"] == "turn.ended"][1:]
        )
        assert ends[0]["data"]["reason"] == "end_turn"
        events = await server.store.all_events(session)
        assert [e.data["reason"] for e in events if e.type == "turn.ended"] == ["interrupted", "end_turn"]
        assert [e.data["text"] for e in events if e.type == "prompt"] == ["go", "and then"]
        assert Received.of(client, session).last == events[-1].seq
        await run(client, session)


async def test_idle_sessions_let_go_of_their_lease_and_open_again(serve: Any) -> None:
    server, _ = await serve(["one", "two"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await run(client, session)
        live = server.hub.sessions[session]
        assert (await server.store.session(session)).owner is not None
        await live.unload()
        assert live.session is None
        assert (await server.store.session(session)).owner is None
        await run(client, session)
        assert Received.of(client, session).last == (await server.store.session(session)).last_seq


async def test_who_watches_a_session_whose_lease_is_lost_is_closed_with_4409(serve: Any) -> None:
    server, _ = await serve(["one"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        live = server.hub.sessions[session]
        await run(client, session)
        live.session.log._term -= 1  # as if another server had taken the session over
        await client.send("session/prompt", sessionId=session, prompt=GO)
        await client.until(lambda c: c.closed)
        assert client.closed == 4409


def test_a_track_knows_what_its_peer_lacks() -> None:
    track = Track(0)
    track.have = 30
    track.lost(20)
    track.lost(25)
    assert track.have == 20


async def test_shed_characters_come_with_the_stored_event(serve: Any) -> None:
    server, _ = await serve()
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.until(lambda c: _seq(c, 0) == 1)
        live = server.hub.sessions[session]
        [subscriber] = live.subscribers.values()
        for offset, text in ((0, "abc"), (3, "def"), (6, "ghi")):
            if offset == 6:
                subscriber._tracks["m"].lost(3)  # as when the queue was full
            live._heard(Live(session_id=session, type="text", message_id="m", offset=offset, text=text))
        for seq, offset, text in ((2, 0, "abcdef"), (3, 6, "ghi")):
            data = {"messageId": "m", "offset": offset, "text": text}
            live._heard(Event(session_id=session, ts=now(), turn=1, step=1, type="text", seq=seq, data=data))
        await client.until(lambda c: _seq(c, 0) == 3)
        received = Received.of(client, session)
        assert received.texts == {"m": "abcdefghi"}
        assert received.kinds[2] == received.kinds[3] == ["agent_message_chunk"]
