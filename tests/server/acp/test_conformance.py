"""What we send is what the protocol's own models accept, and its own client can drive us."""

import asyncio
import json
import os
from typing import Any

import pytest
import websockets
from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, schema, spawn_agent_process, text_block
from acp import meta as protocol
from pydantic import BaseModel

from server.acp.methods import methods
from tests.support.acp import AcpClient
from tests.support.scripted_model import ScriptedModel
from tests.support.served import ETUDE, Served

EDIT = {"name": "edit", "arguments": {"path": "hello.py", "edits": [{"old": "'helo'", "new": "'hello'"}]}}
SCRIPT = [
    {"thought": "Hm.", "text": "I look.", "calls": [{"name": "read", "arguments": {"path": "hello.py"}}]},
    {
        "calls": [
            EDIT,
            {"name": "read", "arguments": {"path": "missing.py"}},
            {"name": "nope", "arguments": {}},
        ]
    },
    {"calls": [{"name": "shell", "arguments": {"command": "echo out; echo err >&2; exit 3"}}]},
    "Done.",
]


class WebSocketTransport:
    """The SDK's transport over a socket of ours (its own needs an extra we do not install)."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    async def send(self, message: dict[str, Any]) -> None:
        await self.socket.send(json.dumps(message))

    async def receive(self) -> dict[str, Any] | None:
        try:
            return json.loads(await self.socket.recv())
        except websockets.ConnectionClosed:
            return None

    async def close(self) -> None:
        await self.socket.close()


class Editor:
    """A client as the SDK wants it: it keeps updates and allows everything once."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call)
        chosen = next(option for option in options if option.kind == "allow_once")
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        raise AssertionError(f"a plain client must not get {method}")

    def kinds(self) -> set[str]:
        return {update.session_update for update in self.updates}

    def said(self) -> str:
        return "".join(u.content.text for u in self.updates if u.session_update == "agent_message_chunk")


async def converse(agent: Any, editor: Editor, workspace: Any) -> None:
    """A whole conversation through the SDK's connection."""
    hello = await agent.initialize(protocol_version=PROTOCOL_VERSION)
    assert hello.protocol_version == 1
    assert hello.agent_capabilities.load_session
    made = await agent.new_session(cwd=str(workspace), mcp_servers=[])
    assert {mode.id for mode in made.modes.available_modes} == {"plan", "ask", "auto", "full"}
    await agent.set_session_mode(session_id=made.session_id, mode_id="ask")
    ended = await agent.prompt(session_id=made.session_id, prompt=[text_block("Fix the greeting.")])
    assert ended.stop_reason == "end_turn"
    assert len(editor.asked) >= 1
    assert editor.said() == "I look.Done."
    assert {"tool_call", "tool_call_update", "usage_update", "current_mode_update"} <= editor.kinds()
    listed = await agent.list_sessions(cwd=str(workspace))
    assert [item.session_id for item in listed.sessions] == [made.session_id]
    editor.updates.clear()
    await agent.load_session(cwd=str(workspace), session_id=made.session_id, mcp_servers=[])
    assert editor.said() == "I look.Done."
    assert "user_message_chunk" in editor.kinds()
    await agent.cancel(session_id=made.session_id)
    with pytest.raises(RequestError):
        await agent.load_session(cwd=str(workspace), session_id="01NOPE", mcp_servers=[])


async def test_the_sdk_client_drives_us_over_a_websocket(serve: Any) -> None:
    server, _ = await serve(SCRIPT)
    url, headers = server.url.replace("http", "ws", 1) + "/acp", {"Authorization": f"Bearer {server.token}"}
    async with websockets.connect(url, additional_headers=headers) as socket:
        editor = Editor()
        agent = connect_to_agent(editor, WebSocketTransport(socket))  # type: ignore[arg-type]
        try:
            await asyncio.wait_for(converse(agent, editor, server.workspace), 60)
        finally:
            await agent.close()


async def test_the_sdk_client_drives_us_over_stdio() -> None:
    with ScriptedModel(SCRIPT) as model, Served(model_url=model.base_url) as server:
        editor = Editor()
        async with spawn_agent_process(
            editor,  # type: ignore[arg-type]
            str(ETUDE),
            "acp",
            env={**os.environ, **server.env, "ETUDE_SERVER": server.url, "ETUDE_TOKEN": server.token},
            cwd=server.workspace,
        ) as (agent, process):
            await asyncio.wait_for(converse(agent, editor, server.workspace), 60)
        assert await asyncio.wait_for(process.wait(), 10) == 0


RESULTS: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
    "session/close": schema.CloseSessionResponse,
    "session/delete": schema.DeleteSessionResponse,
    "authenticate": schema.AuthenticateResponse,
}


def exactly(model: type[BaseModel], value: Any) -> None:
    """The value is valid, and the model keeps every field of it: none is unknown, none was mended."""
    parsed = model.model_validate(value)
    kept = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    assert kept == value


async def test_every_frame_of_a_conversation_is_one_of_the_protocol(serve: Any) -> None:
    server, _ = await serve(SCRIPT, mode="ask")
    calls: list[tuple[str, Any]] = []

    async def call(client: AcpClient, method: str, **params: Any) -> Any:
        result = await client.call(method, **params)
        calls.append((method, result))
        return result

    async with server.client(etude=False) as client, server.client(etude=False) as other:
        await call(client, "authenticate", methodId="none")
        folder = {"cwd": str(server.workspace), "mcpServers": []}
        session = (await call(client, "session/new", **folder))["sessionId"]
        await call(other, "session/resume", sessionId=session, **folder)
        await call(client, "session/set_mode", sessionId=session, modeId="ask")
        await call(client, "session/set_config_option", sessionId=session, configId="model", value="scripted")
        words = [
            {"type": "text", "text": "Fix it."},
            {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"},
            {"type": "resource", "resource": {"uri": "file:///b.py", "text": "b = 1"}},
        ]
        await call(client, "session/prompt", sessionId=session, prompt=words)
        await call(client, "session/load", sessionId=session, **folder)
        await call(client, "session/list")
        hello = next(f.message["result"] for f in client.frames if f.message.get("id") == 1)
        calls.append(("initialize", hello))
        updates = [*client.of("session/update"), *other.of("session/update")]
        requests = client.of("session/request_permission")
        await call(client, "session/close", sessionId=session)
        await call(client, "session/delete", sessionId=session)
    for method, result in calls:
        exactly(RESULTS[method], result)
    assert {method for method, _ in calls} == set(RESULTS)
    assert len(updates) > 30
    for params in updates:
        exactly(schema.SessionNotification, params)
    assert requests
    for params in requests:
        exactly(schema.RequestPermissionRequest, params)
    kinds = {params["update"]["sessionUpdate"] for params in updates}
    assert kinds >= {
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "usage_update",
        "session_info_update",
        "current_mode_update",
        "config_option_update",
    }


async def test_the_methods_we_answer_are_the_agents_methods_of_the_protocol(serve: Any) -> None:
    """Fails when a new version of the SDK brings methods that nobody has decided on."""
    server, _ = await serve()
    standard = {name for name in methods(server.hub) if not name.startswith("_etude/")}
    left_out = {
        name
        for name in protocol.AGENT_METHODS.values()
        if name.startswith(("providers/", "nes/", "document/", "mcp/")) or name in ("logout", "session/fork")
    }
    assert standard == set(protocol.AGENT_METHODS.values()) - left_out
