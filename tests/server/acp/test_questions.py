"""Questions of the agent: a form where the client has forms, options to choose from where it has none."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.acp import AcpClient
from tests.support.turns import call

FORMS = {"elicitation": {"form": {}}}
FREE = call("ask", question="What is it called?")
CHOICE = call("ask", question="Which one?", options=["the red one", "the blue one"])


async def client_of(server: Any, answer: Any, capabilities: dict[str, Any]) -> tuple[AcpClient, list[Any]]:
    """A client that answers each request of the server with `answer` (None: never)."""
    client, asked = server.client(), []

    async def respond(message: dict[str, Any]) -> None:
        asked.append((message["method"], message["params"]))
        if answer is not None:
            await client.socket.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}))

    client._answer = respond
    await client.__aenter__()
    await client.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
    return client, asked


async def result_of(server: Any, session: str) -> dict[str, Any]:
    events = await server.store.all_events(session)
    [result] = [event.data for event in events if event.type == "tool.result"]
    assert [event.type for event in events].count("question") == 1
    return result


@pytest.mark.parametrize(
    ("question", "content", "text"),
    [
        (FREE, {"answer": " Etude "}, "Etude"),
        (CHOICE, {"choice": "the red one"}, "the red one"),
        (CHOICE, {"choice": "the red one", "answer": "but darker"}, "the red one: but darker"),
        (CHOICE, {"answer": "neither"}, "neither"),
    ],
)
async def test_a_form_is_filled_in(serve: Any, question: Any, content: Any, text: str) -> None:
    server, model = await serve([{"calls": [question]}, "Done."])
    answer = {"result": {"action": "accept", "content": content}}
    client, asked = await client_of(server, answer, FORMS)
    session = await client.new_session(server.workspace)
    await client.prompt(session, "go")
    [(method, params)] = asked
    assert method == "elicitation/create" and params["mode"] == "form" and params["sessionId"] == session
    assert params["message"] == question["arguments"]["question"]
    assert (await result_of(server, session))["text"] == text
    assert model.requests[1]["messages"][-1]["content"] == text
    await client.__aexit__()


async def test_the_form_is_what_the_protocol_says(serve: Any) -> None:
    from acp.schema import CreateFormSessionElicitationRequest

    server, _ = await serve([{"calls": [CHOICE]}, "Done."])
    client, asked = await client_of(server, {"result": {"action": "decline"}}, FORMS)
    session = await client.new_session(server.workspace)
    await client.prompt(session, "go")
    form = CreateFormSessionElicitationRequest.model_validate(asked[0][1])
    assert set(form.requested_schema.properties or {}) == {"choice", "answer"}
    result = await result_of(server, session)
    assert "did not answer (declined)" in result["text"] and result["error"] == "aborted"
    await client.__aexit__()


async def test_without_forms_options_are_chosen_from(serve: Any) -> None:
    server, _ = await serve([{"calls": [CHOICE]}, "Done."])
    answer = {"result": {"outcome": {"outcome": "selected", "optionId": "option-2"}}}
    client, asked = await client_of(server, answer, {})
    session = await client.new_session(server.workspace)
    await client.prompt(session, "go")
    [(method, params)] = asked
    assert method == "session/request_permission"
    assert [item["name"] for item in params["options"]] == ["the red one", "the blue one", "None of these"]
    assert (await result_of(server, session))["text"] == "the blue one"
    await client.__aexit__()


async def test_without_forms_nothing_can_be_said_freely(serve: Any) -> None:
    server, _ = await serve([{"calls": [FREE]}, "Done."])
    client, asked = await client_of(server, None, {})
    session = await client.new_session(server.workspace)
    await client.prompt(session, "go")
    assert asked == []
    assert "no client of this session can put such a question" in (await result_of(server, session))["text"]
    await client.__aexit__()


async def test_the_first_answer_wins_and_a_late_client_is_asked_too(serve: Any) -> None:
    server, _ = await serve([{"calls": [FREE]}, "Done."])
    first, asked_first = await client_of(server, None, FORMS)
    session = await first.new_session(server.workspace)
    turn = asyncio.create_task(first.prompt(session, "go"))
    await first.until(lambda client: asked_first)
    answer = {"result": {"action": "accept", "content": {"answer": "second"}}}
    second, asked_second = await client_of(server, answer, FORMS)
    await second.call("_etude/attach", sessionId=session, afterSeq=0)
    await turn
    assert len(asked_second) == 1
    assert (await result_of(server, session))["text"] == "second"
    for client in (first, second):
        await client.__aexit__()


async def test_a_cancelled_turn_withdraws_its_question(serve: Any) -> None:
    server, _ = await serve([{"calls": [FREE]}, "Done."])
    client, asked = await client_of(server, None, FORMS)
    session = await client.new_session(server.workspace)
    turn = asyncio.create_task(client.prompt(session, "go"))
    await client.until(lambda client: asked)
    await client.notify("session/cancel", sessionId=session)
    assert (await turn)["stopReason"] == "cancelled"
    assert client.of("$/cancel_request")
    await client.__aexit__()


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {}},
        {"result": {"action": "accept"}},
        {"result": 7},
        {"error": {"code": -1, "message": "x" * 1_000_000}},
    ],
)
async def test_an_answer_that_is_none_is_not_waited_on(serve: Any, answer: Any) -> None:
    server, _ = await serve([{"calls": [FREE]}, "Done."])
    client, _ = await client_of(server, answer, FORMS)
    session = await client.new_session(server.workspace)
    await client.prompt(session, "go")
    told = (await result_of(server, session))["text"]
    assert "the client failed to answer" in told and len(told) < 1000
    await client.__aexit__()
