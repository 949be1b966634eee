"""Self-summaries of a real server: what clients are sent and shown, and what a crash leaves."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.server.conftest import Open, Serve
from tests.support.acp import AcpClient
from tests.support.scripted_model import ScriptedModel
from tests.support.served import ETUDE, Served

FILES = {"big.txt": "".join(f"line {i} {'word ' * 12}\n" for i in range(100))}
SUMMARY = "Read the **beginning** of big.txt. Next: read on."
WINDOW = 4_000


def asked_to_summarise(body: dict[str, Any]) -> bool:
    return "Please summarize the conversation" in str(body["messages"][-1]["content"])


def answers(steps: int, summary: Any = SUMMARY) -> Callable[[dict[str, Any]], Any]:
    """So many reads in a turn, each of a thousand tokens, then an answer."""
    made: list[int] = []

    def answer(body: dict[str, Any]) -> Any:
        if asked_to_summarise(body):
            return summary
        made.append(1)
        if len(made) > steps:
            return "all read"
        return {"calls": [{"name": "read", "arguments": {"path": "big.txt", "start": len(made)}}]}

    return answer


async def test_clients_are_told_in_the_form_they_know() -> None:
    with (
        ScriptedModel(answers(5), window=WINDOW) as model,
        Served(model_url=model.base_url, files=FILES) as server,
    ):
        async with server.client() as own, server.client(etude=False) as plain:
            session = await own.new_session(server.workspace)
            await plain.call("session/resume", sessionId=session, cwd=str(server.workspace), mcpServers=[])
            assert (await own.prompt(session, "read it"))["stopReason"] == "end_turn"
            for client in (own, plain):
                thought = next(iter(_thoughts(client)))
                assert thought["kind"] == "think" and thought["status"] == "completed"
                assert thought["content"][0]["content"]["text"] == SUMMARY
                assert "tokens became" in thought["title"]
            assert not own.updates("compaction_update")
        events = server.events(session)
        compacting = _Compacting(server.url, server.token)
        async with compacting as client:
            await client.call("session/load", sessionId=session, cwd=str(server.workspace), mcpServers=[])
            updates = [params["update"] for params in client.updates("compaction_update")]
        summaries = [event for event in events if event["type"] == "summary"]
        assert [update["compactionId"] for update in updates] == [f"summary-{e['seq']}" for e in summaries]
        assert updates[0]["summary"] == [{"type": "text", "text": SUMMARY}] and not _thoughts(client)
        assert all(e["data"]["usage"]["input"] <= WINDOW for e in events if e["type"] == "generation")
        # A summary request is a model call, but no step.
        ended = next(event for event in events if event["type"] == "turn.ended")
        assert ended["data"]["steps"] == 6


class _Compacting(AcpClient):
    """A client that shows compactions."""

    async def call(self, method: str, timeout: float = 60, **params: Any) -> Any:
        if method == "initialize":
            params["clientCapabilities"] = {"session": {"compaction": {}}}
        return await super().call(method, timeout, **params)


def _thoughts(client: AcpClient) -> list[dict[str, Any]]:
    calls = [params["update"] for params in client.updates("tool_call")]
    return [call for call in calls if call["toolCallId"].startswith("summary-")]


async def test_a_server_killed_right_behind_a_summary_goes_on_from_it() -> None:
    """Killed at the first step of the new segment: what it was sent is what the next turn begins with."""
    script = answers(6)

    def slow(body: dict[str, Any]) -> Any:
        first = str(body["messages"][1]["content"])
        answer = script(body)
        if "<summary>" in first and "go on" not in str(body["messages"][-1]["content"]):
            return {"text": "too late", "first_ms": 60_000}
        return answer if not asked_to_summarise(body) else SUMMARY

    with (
        ScriptedModel(slow, window=WINDOW) as model,
        Served(model_url=model.base_url, files=FILES) as server,
    ):
        async with server.client() as client:
            session = await client.new_session(server.workspace)
            prompt = [{"type": "text", "text": "read all of it, slowly"}]
            await client.send("session/prompt", sessionId=session, prompt=prompt)
            await client.until(_thoughts)
            server.kill()
        model.wait(lambda m: bool(m.requests))
        server.start()
        async with server.client() as client:
            await client.call("session/resume", sessionId=session, cwd=str(server.workspace), mcpServers=[])
            assert (await client.prompt(session, "go on"))["stopReason"] == "end_turn"
        (summary,) = [e["data"] for e in server.events(session) if e["type"] == "summary"]
        resumed = next(r for r in model.requests if str(r["messages"][-1]["content"]).startswith("go on"))
        assert resumed["messages"][1] == summary["messages"][0]
        assert "read all of it, slowly" in resumed["messages"][1]["content"]
        assert SUMMARY in resumed["messages"][1]["content"]
        called = [c["id"] for m in resumed["messages"] for c in m.get("tool_calls") or ()]
        answered = [m["tool_call_id"] for m in resumed["messages"] if m["role"] == "tool"]
        assert called == answered


def test_the_page_shows_a_folded_card_with_the_sizes(opened: Open, serve: Serve) -> None:
    server, _ = serve(answers(4), window=WINDOW, files=FILES)
    chat = opened(server)
    chat.send("Read it.")
    chat.wait_for_end()
    assert chat.transcript() == opened(server, chat.session).transcript_at_end(chat)
    card = chat.page.locator(".folded", has_text="Earlier messages were summarised").first
    expect(card.locator("summary")).to_contain_text("tokens became")
    expect(card.locator("strong")).to_have_count(0)
    card.locator("summary").click()
    expect(card.locator("strong")).to_have_text("beginning")


def test_the_terminal_says_it_in_a_line_and_json_in_an_object(serve: Serve) -> None:
    said: list[str] = []
    for arguments in ((), ("--json",)):
        server, _ = serve(answers(4), window=WINDOW, files=FILES)
        done = subprocess.run(
            [ETUDE, "run", "Read it.", *arguments],
            cwd=server.workspace,
            env={**server.env, "ETUDE_SERVER": server.url, "ETUDE_TOKEN": server.token},
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout + done.stderr)
    assert "Earlier messages were summarised: about" in said[0]
    objects = [json.loads(line) for line in said[1].splitlines() if line.startswith("{")]
    updates = [item["update"] for item in objects if item.get("type") == "update"]
    assert SUMMARY in json.dumps([u for u in updates if u["sessionUpdate"] == "compaction_update"])
