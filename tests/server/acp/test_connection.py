"""No frame ends a connection, and a slow peer costs bounded memory."""

import asyncio
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from server.acp import connection as wire
from server.acp.connection import Answer, Connection, Method, RpcError


class Anything(BaseModel):
    number: int = 0


class Peer:
    """A connection with its transport in a list. `blocked` stops the transport."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.aborted: list[tuple[int, str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.cancelled = asyncio.Event()
        self.connection = Connection(
            {
                "initialize": Method(Anything, self.initialize),
                "echo": Method(Anything, self.echo),
                "wait": Method(Anything, self.wait),
                "crash": Method(Anything, self.crash),
                "follow": Method(Anything, self.follow),
            },
            self.write,
            lambda code, reason: self.aborted.append((code, reason)),
            user_id="local",
        )
        self.connection.ready = True
        self.pump = asyncio.create_task(self.connection.pump())

    async def write(self, text: str) -> None:
        await self.open.wait()
        self.sent.append(orjson.loads(text))

    async def initialize(self, connection: Connection, params: Anything) -> dict[str, Any]:
        connection.ready = True
        return {}

    async def echo(self, connection: Connection, params: Anything) -> dict[str, Any]:
        return {"number": params.number}

    async def wait(self, connection: Connection, params: Anything) -> dict[str, Any]:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {}

    async def crash(self, connection: Connection, params: Anything) -> dict[str, Any]:
        raise ZeroDivisionError("a defect")

    async def follow(self, connection: Connection, params: Anything) -> Answer:
        return Answer({"first": True}, lambda: connection.notify("second", {}))

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def feed(self, data: str | None) -> list[dict[str, Any]]:
        """What is answered to one frame."""
        before = len(self.sent)
        self.connection.feed(data)
        await self.settle()
        return self.sent[before:]

    async def call(self, method: str, **params: Any) -> Any:
        [answer] = await self.feed(
            orjson.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).decode()
        )
        return answer


@pytest.fixture
async def peer():
    peer = Peer()
    yield peer
    peer.connection.finish()
    peer.pump.cancel()
    await asyncio.gather(peer.pump, return_exceptions=True)


PARSE, INVALID, UNKNOWN, PARAMS = -32700, -32600, -32601, -32602

HOSTILE = {
    "invalid JSON": ("{", PARSE),
    "an array": ("[]", INVALID),
    "a batch": ('[{"jsonrpc":"2.0","id":1,"method":"echo"}]', INVALID),
    "a number": ("5", INVALID),
    "binary": (None, INVALID),
    "an id only": ('{"id":3}', INVALID),
    "an empty object": ("{}", INVALID),
    "an id that is a list": ('{"id":[1],"method":"echo"}', INVALID),
    "an id that is true": ('{"id":true,"method":"echo"}', INVALID),
    "an id that is a fraction": ('{"id":1.5,"method":"echo"}', INVALID),
    "a method that is a number": ('{"id":1,"method":5}', INVALID),
    "a method that is null": ('{"id":1,"method":null}', INVALID),
    "params that are a list": ('{"id":1,"method":"echo","params":[1]}', INVALID),
    "params of a wrong type": ('{"id":1,"method":"echo","params":{"number":"x"}}', PARAMS),
    "an unknown method": ('{"id":1,"method":"nope"}', UNKNOWN),
    "an unknown method of ours": ('{"id":1,"method":"_etude/nope"}', UNKNOWN),
    "deep nesting": ('{"id":1,"method":"echo","params":{"a":' + "[" * 50_000 + "]" * 50_000 + "}}", PARSE),
    "NaN": ('{"id":1,"method":"echo","params":{"number":NaN}}', PARSE),
    "a lone surrogate": ('{"id":1,"method":"\\ud800"}', PARSE),
    "a very long number": (
        '{"id":1,"method":"echo","params":{"number":' + "9" * 5000 + "}}",
        (PARSE, PARAMS),
    ),
    "an answer with an odd id": ('{"id":[1],"result":{}}', INVALID),
    "a frame over the soft limit": (" " * (wire.SOFT_LIMIT + 1), INVALID),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_frame_is_answered_and_the_connection_lives_on(peer: Peer, name: str) -> None:
    frame, code = HOSTILE[name]
    [answer] = await peer.feed(frame)
    assert answer["error"]["code"] in (code if isinstance(code, tuple) else (code,))
    assert (await peer.call("echo", number=3))["result"] == {"number": 3}
    assert not peer.aborted


@pytest.mark.parametrize(
    "frame",
    [
        '{"method":"nope"}',
        '{"method":"echo","params":{"number":"x"}}',
        '{"method":"crash"}',
        '{"method":"$/cancel_request","params":{"requestId":99}}',
        '{"method":"$/cancel_request","params":{}}',
        '{"id":"²","result":{}}',
        '{"id":' + "9" * 40 + ',"result":{}}',
        '{"id":12345,"error":"x"}',
        '{"id":null,"result":null}',
    ],
)
async def test_what_wants_no_answer_gets_none(peer: Peer, frame: str) -> None:
    answers = await peer.feed(frame)
    assert [answer for answer in answers if "error" not in answer] == []
    assert (await peer.call("echo", number=1))["result"] == {"number": 1}


async def test_errors_do_not_repeat_what_was_sent(peer: Peer) -> None:
    answer = await peer.call("echo", number="a secret value")
    assert "a secret value" not in str(answer)
    assert "number" in answer["error"]["message"]


async def test_a_call_before_initialize_is_refused(peer: Peer) -> None:
    peer.connection.ready = False
    assert (await peer.call("echo"))["error"]["code"] == INVALID
    assert "result" in await peer.call("initialize")
    assert "result" in await peer.call("echo")


async def test_a_defect_in_a_method_is_an_answer(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    answer = await peer.call("crash")
    assert answer["error"]["code"] == -32603
    assert "ZeroDivision" not in str(answer)
    assert "ZeroDivisionError" in caplog.text


async def test_a_request_can_be_withdrawn(peer: Peer) -> None:
    assert await peer.feed('{"id":"a","method":"wait"}') == []
    [answer] = await peer.feed('{"method":"$/cancel_request","params":{"requestId":"a"}}')
    assert answer["id"] == "a"
    assert answer["error"]["code"] == -32800
    assert peer.cancelled.is_set()


async def test_an_id_in_use_is_refused(peer: Peer) -> None:
    await peer.feed('{"id":1,"method":"wait"}')
    [answer] = await peer.feed('{"id":1,"method":"echo"}')
    assert answer["error"]["code"] == INVALID


async def test_requests_in_progress_are_bounded(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_RUNNING", 3)
    for id in range(3):
        assert await peer.feed(f'{{"id":{id},"method":"wait"}}') == []
    [answer] = await peer.feed('{"id":9,"method":"echo"}')
    assert answer["error"]["data"] == {"limit": 3}


async def test_what_follows_an_answer_follows_it_at_once(peer: Peer) -> None:
    sent = await peer.feed('{"id":1,"method":"follow"}')
    assert [message.get("method", "answer") for message in sent] == ["answer", "second"]


@pytest.mark.parametrize("answer", ['{"id":1,"result":5}', '{"id":"1","result":5}'])
async def test_our_requests_are_answered(peer: Peer, answer: str) -> None:
    asking = asyncio.create_task(peer.connection.request("ask", {}))
    await peer.settle()
    assert peer.sent[-1] == {"jsonrpc": "2.0", "id": 1, "method": "ask", "params": {}}
    await peer.feed(answer)
    assert await asking == 5


@pytest.mark.parametrize("error", ['"x"', "5", "[]", '{"code":"odd"}', '{"code":-32601,"message":"no"}'])
async def test_an_odd_error_answers_a_request_all_the_same(peer: Peer, error: str) -> None:
    asking = asyncio.create_task(peer.connection.request("ask", {}))
    await peer.settle()
    await peer.feed(f'{{"id":1,"error":{error}}}')
    with pytest.raises(RpcError):
        await asking
    assert (await peer.call("echo", number=2))["result"] == {"number": 2}


async def test_withdrawing_our_request_tells_the_peer_and_ignores_a_late_answer(peer: Peer) -> None:
    asking = asyncio.create_task(peer.connection.request("ask", {}))
    await peer.settle()
    asking.cancel()
    await peer.settle()
    assert peer.sent[-1]["method"] == "$/cancel_request"
    assert peer.sent[-1]["params"] == {"requestId": 1}
    assert await peer.feed('{"id":1,"result":5}') == []


async def test_the_end_of_the_connection_ends_our_requests(peer: Peer) -> None:
    asking = asyncio.create_task(peer.connection.request("ask", {}))
    await peer.settle()
    peer.connection.finish()
    with pytest.raises(ConnectionError):
        await asking
    with pytest.raises(ConnectionError):
        await peer.connection.request("ask", {})


class Track:
    def __init__(self) -> None:
        self.losses: list[int] = []

    def lost(self, offset: int) -> None:
        self.losses.append(offset)


async def test_live_frames_are_given_up_before_the_connection_is(peer: Peer) -> None:
    peer.open.clear()
    track = Track()
    for offset in range(wire.MAX_FRAMES):
        peer.connection.put("{}", track, offset)
    assert not track.losses
    peer.connection.put('{"state":1}')
    assert track.losses == list(range(wire.MAX_FRAMES))
    assert not peer.aborted
    peer.open.set()
    await peer.settle()
    assert peer.sent[-1] == {"state": 1}


async def test_a_peer_that_does_not_read_is_closed_with_4429_and_holds_no_memory(peer: Peer) -> None:
    peer.open.clear()
    big = '"' + "x" * 100_000 + '"'
    for _ in range(200):
        peer.connection.put(big)
    assert [code for code, _ in peer.aborted] == [4429]
    assert peer.connection.backlog == 0
    peer.connection.put(big)
    assert peer.connection.backlog == 0


async def test_a_frame_larger_than_the_bound_still_passes_an_empty_queue(peer: Peer) -> None:
    peer.connection.put('"' + "x" * (wire.MAX_BYTES + 10) + '"')
    await peer.settle()
    assert len(peer.sent) == 1


async def test_a_bulk_sender_waits_for_the_peer(peer: Peer) -> None:
    peer.open.clear()
    for _ in range(100):
        peer.connection.put("{}")
    waiting = asyncio.create_task(peer.connection.drained())
    await peer.settle()
    assert not waiting.done()
    peer.open.set()
    await asyncio.wait_for(waiting, 2)


async def test_errors_are_cleaned_and_bounded() -> None:
    sent: list[dict[str, Any]] = []

    async def write(text: str) -> None:
        sent.append(orjson.loads(text))

    async def refuse(connection: Connection, params: Anything) -> None:
        raise RpcError(-1, "no secret-word here", {"secret-word": ["secret-word", 5], "plain": True})

    async def babble(connection: Connection, params: Anything) -> None:
        raise RpcError(-1, "a" * 100_000, {"long": "a" * 100_000})

    def clean(value: Any) -> Any:
        return orjson.loads(orjson.dumps(value).replace(b"secret-word", b"[gone]"))

    methods = {"refuse": Method(Anything, refuse), "babble": Method(Anything, babble)}
    connection = Connection(methods, write, lambda code, reason: None, user_id="local", clean=clean)
    connection.ready = True
    pump = asyncio.create_task(connection.pump())
    for id, method in enumerate(("refuse", "babble", "secret-word")):
        connection.feed(orjson.dumps({"id": id, "method": method}).decode())
    for _ in range(20):
        await asyncio.sleep(0)
    refused, babbled, unknown = (frame["error"] for frame in sent)
    assert refused["message"] == "no [gone] here"
    assert refused["data"] == {"[gone]": ["[gone]", 5], "plain": True}
    assert len(babbled["message"]) < wire.ERROR_LIMIT + 10 and "data" not in babbled
    assert unknown["data"] == {"method": "[gone]"}
    connection.finish()
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
