"""Approvals: asked of every client, answered once."""

import asyncio
import json
from typing import Any

import pytest

from server.acp import questions
from tests.support.acp import AcpClient, RpcFailure, allow

GO = [{"type": "text", "text": "go"}]
EDIT = {"name": "edit", "arguments": {"path": "hello.py", "edits": [{"old": "'helo'", "new": "'hello'"}]}}
SCRIPT = [{"calls": [EDIT]}, "Done."]


class Person:
    """Answers permission requests when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, dict[str, Any]]] = []

    async def answer(self, client: AcpClient, result: Any, index: int = -1) -> None:
        id, _ = self.asked[index]
        message = {"jsonrpc": "2.0", "id": id, **result}
        await client.socket.send(json.dumps(message))


def silent(server: Any, person: Person, **options: Any) -> AcpClient:
    """A client that leaves permission requests to `person`."""
    client = server.client(**options)

    async def leave(message: dict[str, Any]) -> None:
        person.asked.append((message["id"], message["params"]))

    client._answer = leave
    return client


ALLOW = {"result": {"outcome": {"outcome": "selected", "optionId": "allow"}}}
DENY = {"result": {"outcome": {"outcome": "selected", "optionId": "deny"}}}


async def start(client: AcpClient, server: Any) -> tuple[str, "asyncio.Task[Any]"]:
    session = await client.new_session(server.workspace)
    turn = asyncio.create_task(client.call("session/prompt", sessionId=session, prompt=GO))
    return session, turn


async def resolutions(server: Any, session: str) -> list[dict[str, Any]]:
    return [e.data for e in await server.store.all_events(session) if e.type == "approval.resolved"]


@pytest.mark.case("agent-25")
async def test_a_request_reaches_every_client_and_the_first_answer_wins(serve: Any) -> None:
    server, _ = await serve(SCRIPT, mode="ask")
    first, second, third = Person(), Person(), Person()
    async with (
        silent(server, first) as one,
        silent(server, second) as two,
        silent(server, third, etude=False) as plain,
    ):
        session = await one.new_session(server.workspace)
        await two.call("_etude/attach", sessionId=session, afterSeq=0)
        await plain.call("session/resume", sessionId=session, cwd="/", mcpServers=[])
        turn = asyncio.create_task(one.call("session/prompt", sessionId=session, prompt=GO))
        await one.until(lambda _: first.asked and second.asked and third.asked)
        request = first.asked[0][1]
        assert request["toolCall"]["content"][0]["newText"] == "def greet():\n    return 'hello'\n"
        assert request["toolCall"]["content"][0]["path"] == str(server.workspace / "hello.py")
        assert {option["kind"] for option in request["options"]} >= {"allow_once", "reject_once"}
        assert (server.workspace / "hello.py").read_text().count("helo") == 1
        await second.answer(two, ALLOW)
        await first.answer(one, DENY)  # too late
        assert (await turn)["stopReason"] == "end_turn"
        assert "'hello'" in (server.workspace / "hello.py").read_text()
        assert [(item["outcome"], item["by"]) for item in await resolutions(server, session)] == [
            ("allowed", "local")
        ]
        id = first.asked[0][1]["_meta"]["etude"]["requestId"]
        for client in (one, two):
            [resolved] = client.of("_etude/permission_resolved")
            assert (resolved["requestId"], resolved["outcome"]) == (id, "allowed")
        assert plain.of("$/cancel_request") == [{"requestId": third.asked[0][0]}]
        assert not plain.of("_etude/permission_resolved")
        assert not two.of("$/cancel_request")


async def test_a_pending_request_is_sent_again_on_attach_with_a_new_id(serve: Any) -> None:
    server, _ = await serve(SCRIPT, mode="ask")
    before, after = Person(), Person()
    async with silent(server, before) as client:
        session, _ = await start(client, server)
        await client.until(lambda _: before.asked)
        client.abort()
        await client.until(lambda c: c.closed is not None)
    async with silent(server, after) as client:
        answer = await client.call("_etude/attach", sessionId=session, afterSeq=0)
        await client.until(lambda _: after.asked)
        mark = after.asked[0][1]["_meta"]["etude"]
        assert mark == before.asked[0][1]["_meta"]["etude"]
        assert answer["state"]["permissions"] == [mark["requestId"]]
        await after.answer(client, ALLOW)
        await client.until(lambda c: any(e["type"] == "turn.ended" for e in c.of("_etude/event")))
        assert [item["outcome"] for item in await resolutions(server, session)] == ["allowed"]


async def test_a_denial_is_told_to_the_model_and_nothing_is_written(serve: Any) -> None:
    server, model = await serve(SCRIPT, mode="ask")
    async with server.client(permission=allow("reject_once")) as client:
        _, turn = await start(client, server)
        assert (await turn)["stopReason"] == "end_turn"
        assert "helo" in (server.workspace / "hello.py").read_text()
        assert "not allow" in model.requests[1]["messages"][-1]["content"]


async def test_a_cancel_withdraws_the_question(serve: Any) -> None:
    server, _ = await serve(SCRIPT, mode="ask")
    person = Person()
    async with silent(server, person) as client:
        session, turn = await start(client, server)
        await client.until(lambda _: person.asked)
        await client.notify("session/cancel", sessionId=session)
        assert (await turn)["stopReason"] == "cancelled"
        assert client.of("$/cancel_request") == [{"requestId": person.asked[0][0]}]
        assert client.of("_etude/permission_resolved")[0]["outcome"] == "cancelled"
        await person.answer(client, ALLOW)  # too late, harms nothing
        assert "helo" in (server.workspace / "hello.py").read_text()
        assert [item["outcome"] for item in await resolutions(server, session)] == ["cancelled"]


@pytest.mark.parametrize(
    "answer",
    [
        {"result": None},
        {"result": {"outcome": {"outcome": "selected", "optionId": "made up"}}},
        {"result": {"outcome": {"outcome": "selected", "optionId": 5}}},
        {"result": {"outcome": "allow"}},
        {"error": {"code": -32601, "message": "Method not found"}},
        {"error": "odd"},
    ],
)
async def test_an_answer_that_is_none_denies_where_nobody_else_can_answer(serve: Any, answer: Any) -> None:
    server, _ = await serve(SCRIPT, mode="ask")
    person = Person()
    async with silent(server, person) as client:
        session, turn = await start(client, server)
        await client.until(lambda _: person.asked)
        await person.answer(client, answer)
        await turn
        assert [item["outcome"] for item in await resolutions(server, session)] == ["denied"]
        assert "helo" in (server.workspace / "hello.py").read_text()


async def test_one_client_that_cannot_answer_leaves_it_to_the_other(serve: Any) -> None:
    server, _ = await serve(SCRIPT, mode="ask")
    unable, able = Person(), Person()
    async with silent(server, unable) as one, silent(server, able) as two:
        session = await one.new_session(server.workspace)
        await two.call("_etude/attach", sessionId=session, afterSeq=0)
        turn = asyncio.create_task(one.call("session/prompt", sessionId=session, prompt=GO))
        await one.until(lambda _: unable.asked and able.asked)
        await unable.answer(one, {"error": {"code": -32601, "message": "no"}})
        await able.answer(two, ALLOW)
        await turn
        assert [item["outcome"] for item in await resolutions(server, session)] == ["allowed"]


@pytest.mark.case("agent-25")
async def test_a_request_that_nobody_is_there_to_answer_is_denied_in_time(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "UNATTENDED_S", 1.0)
    server, _ = await serve(SCRIPT, mode="ask")
    person = Person()
    async with silent(server, person) as client:
        session, _ = await start(client, server)
        await client.until(lambda _: person.asked)
    async with server.client() as client:
        live = server.hub.sessions[session]
        await client.until(lambda _: not live.busy)
        assert [(item["outcome"], item["by"]) for item in await resolutions(server, session)] == [
            ("denied", "headless")
        ]


async def test_always_asks_no_more_in_this_session(serve: Any) -> None:
    back = {"name": "edit", "arguments": {"path": "hello.py", "edits": [{"old": "'hello'", "new": "'helo'"}]}}
    server, _ = await serve([{"calls": [EDIT]}, {"calls": [back]}, "Done."], mode="ask")
    asked: list[Any] = []

    def always(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return allow("allow_always")(params)

    async with server.client(permission=always) as client:
        session, turn = await start(client, server)
        await turn
        assert len(asked) == 1
        with pytest.raises(RpcFailure):
            await client.call("session/request_permission", sessionId=session)
