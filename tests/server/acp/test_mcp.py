"""MCP servers that a client names: their tools are offered, judged and called; failures are named."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.acp import RpcFailure, allow
from tests.support.turns import call

PROGRAM = str(Path(__file__).parents[2] / "support" / "mcp_server.py")
SERVER = {"name": "tests", "command": sys.executable, "args": [PROGRAM], "env": []}
ADD = call("mcp__tests__add", a=20, b=22)


async def events(server: Any, session: str, kind: str) -> list[dict[str, Any]]:
    return [event.data for event in await server.store.all_events(session) if event.type == kind]


async def test_their_tools_are_offered_judged_and_called(serve: Any) -> None:
    server, model = await serve([{"calls": [ADD]}, {"calls": [ADD]}, "Done."], mode="ask")
    async with server.client(permission=allow("allow_always")) as client:
        session = await client.new_session(server.workspace, mcpServers=[SERVER])
        await client.prompt(session, "go")
        asked = await events(server, session, "approval.requested")
        assert [item["title"] for item in asked] == ['tests: add {"a":20,"b":22}'], (
            "the rule covers the second"
        )
        assert [item["text"] for item in await events(server, session, "tool.result")] == ["42", "42"]
        names = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
        assert "mcp__tests__add" in names and names.index("read") < names.index("mcp__tests__add")
        assert model.requests[0]["tools"] == model.requests[2]["tools"]


@pytest.mark.parametrize(("mode", "asked"), [("plan", 0), ("auto", 1), ("full", 0)])
async def test_the_mode_decides(serve: Any, mode: str, asked: int) -> None:
    """Nothing confines an MCP server, so `auto` asks for its tools too."""
    server, _ = await serve([{"calls": [ADD]}, "Done."], mode=mode)
    async with server.client(permission=allow()) as client:
        session = await client.new_session(server.workspace, mcpServers=[SERVER])
        await client.prompt(session, "go")
        assert len(await events(server, session, "approval.requested")) == asked
        [result] = await events(server, session, "tool.result")
        assert ("Refused" in result["text"]) if mode == "plan" else (result["text"] == "42")


async def test_a_session_goes_on_with_the_servers_named_when_it_is_loaded(serve: Any) -> None:
    server, model = await serve(["One.", {"calls": [ADD]}, "Two.", "Three."], mode="full")
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.prompt(session, "one")
        await client.call("session/close", sessionId=session)
        await client.call("session/load", sessionId=session, cwd=str(server.workspace), mcpServers=[SERVER])
        await client.prompt(session, "two")
        await client.prompt(session, "three")
    started = await events(server, session, "turn.started")
    assert [item.get("tools") is not None for item in started] == [True, True, False]
    assert len(model.requests[1]["tools"]) > len(model.requests[0]["tools"])
    assert [item["text"] for item in await events(server, session, "tool.result")] == ["42"]


async def test_one_that_cannot_be_started_is_named_and_the_turn_goes_on(serve: Any) -> None:
    server, _ = await serve(["Done."], mode="full")
    async with server.client() as client:
        gone = {"name": "gone", "command": "/no/such/program", "args": [], "env": []}
        session = await client.new_session(server.workspace, mcpServers=[gone])
        assert (await client.prompt(session, "go"))["stopReason"] == "end_turn"
        [error] = await events(server, session, "error")
        assert error["where"] == "tool" and "no program '/no/such/program'" in error["message"]


async def test_a_wrong_description_is_refused(serve: Any) -> None:
    server, _ = await serve(["Done."])
    async with server.client() as client:
        with pytest.raises(RpcFailure, match="type 'sse' is not offered"):
            await client.new_session(
                server.workspace, mcpServers=[{"name": "a", "type": "sse", "url": "http://a", "headers": []}]
            )
        capabilities = await client.call("initialize", protocolVersion=1, clientCapabilities={})
        assert capabilities["agentCapabilities"]["mcpCapabilities"] == {"http": True, "sse": False}


@pytest.mark.parametrize("option", ["allow_once", "allow_always", "reject_once"])
async def test_a_server_that_the_workspace_names_starts_only_when_allowed(serve: Any, option: str) -> None:
    server, model = await serve(["One.", "Two."], mode="full")
    words = f'command = "{sys.executable}"\nargs = ["{PROGRAM}"]\n'
    (server.workspace / "etude.toml").write_text(f"[mcp.theirs]\n{words}")
    async with server.client(permission=allow(option)) as client:
        for prompt in ("one", "two"):
            session = await client.new_session(server.workspace)
            await client.prompt(session, prompt)
            asked = await events(server, session, "approval.requested")
            again = prompt == "two" and option == "allow_always"
            assert len(asked) == (0 if again else 1), "a rule is kept for the workspace"
            if asked:
                assert "'theirs' that this workspace's etude.toml names" in asked[0]["title"]
                assert asked[0]["command"] == f"{sys.executable} {PROGRAM}"
            names = [tool["function"]["name"] for tool in model.requests[-1]["tools"]]
            assert ("mcp__theirs__add" in names) == (option != "reject_once")
        (server.workspace / "etude.toml").write_text(f"[mcp.theirs]\n{words}env = {{ A = '1' }}\n")
        session = await client.new_session(server.workspace)
        await client.prompt(session, "three")
        assert len(await events(server, session, "approval.requested")) == 1, (
            "a rule covers no other variables"
        )
