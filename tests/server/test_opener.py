"""Opening sessions: what their models turn out to be, and logs that cannot be read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.events import Draft
from agent.models.settings import ModelSettings
from server import warming
from tests.support.acp import RpcFailure
from tests.support.inprocess import InProcess, starting
from tests.support.scripted_model import ScriptedModel
from tests.support.turns import until


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    async with starting(tmp_path) as start:
        yield start


async def test_a_first_session_suits_a_window_that_only_the_endpoint_knows(tmp_path: Path) -> None:
    with ScriptedModel([{"text": "hi", "usage": {"prompt_tokens": 300}}, "again"], window=4000) as model:
        flags: dict[str, Any] = {"agent.model": "small"}
        server = InProcess(tmp_path, model_url=model.base_url, **flags)
        small = ModelSettings(provider="openai", model="scripted", base_url=model.base_url)
        server.settings = server.settings.model_copy(update={"models": {"small": small}})
        async with server, server.client() as client:
            session = await client.new_session(server.workspace)
            await client.prompt(session, "hello")
            events = await server.store.all_events(session)
            [begun] = [event.data for event in events if event.type == "turn.started"]
            assert begun["profile"] == "compact"
            [usage] = client.updates("usage_update")
            assert usage["update"]["size"] == 4000
            answer = await client.call("_etude/attach", sessionId=session, afterSeq=0)
            assert answer["state"]["contextWindow"] == 4000


async def test_a_log_that_cannot_be_read_is_an_answer_and_not_a_silence(serve: Any) -> None:
    server, _ = await serve(["ok"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        log = await server.store.lease(session)
        await log.submit(Draft(type="prompt", data={"written by": "something else"}, turn=1))
        await log.release()
        for _ in range(2):
            with pytest.raises(RpcFailure, match="defect in Etude"):
                await asyncio.wait_for(client.prompt(session, "hello"), 10)
        assert (await server.store.session(session)).owner is None
        other = await client.new_session(server.workspace)
        assert (await client.prompt(other, "hello"))["stopReason"] == "end_turn"


async def test_a_session_that_opens_while_its_client_leaves_is_not_lost(serve: Any) -> None:
    """Else it would keep its lease, and nobody could open it again."""
    server, _ = await serve(["ok"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
    await until(lambda: session not in server.hub.sessions)
    async with server.client() as client:
        await client.call("session/list")
        live = await server.hub.find(session, "local")
        live.revive()
        [connection] = server.hub.connections
        server.hub.gone(connection)
        server.hub.joined(connection)
        await until(lambda: live.session is not None)
        assert server.hub.sessions[session] is live
        assert (await client.prompt(session, "hello"))["stopReason"] == "end_turn"


async def test_a_session_that_opens_has_its_workspace_indexed_beside(serve: Any) -> None:
    server, _ = await serve(["ok"])
    (server.workspace / "code.py").write_text("def one(): pass\n")
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.prompt(session, "hello")
        live = server.hub.sessions[session]
        workspace = live.session.workspace
        await until(lambda: workspace.index is not None and workspace.index.state.complete, 30)
        assert workspace.index.state.total >= 1
        child = psutil.Process(workspace.indexer.pid)
        assert child.nice() > psutil.Process().nice()


async def test_a_session_that_is_let_go_at_once_leaves_no_index_behind(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "AFTER_S", 3.0)  # "at once" on a machine that has other things to do, too
    server, _ = await serve(["ok"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.prompt(session, "hello")
        live = server.hub.sessions[session]
        workspace = live.session.workspace
        await live.unload()
        await asyncio.sleep(3.5)
        assert workspace.index is None and workspace.indexer.pid is None
