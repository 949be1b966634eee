"""The chat page on a session of two thousand messages."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import CDPSession, expect

from agent.events import Draft, SessionCreated
from server.store import Store
from tests.support.browser import Open, Serve
from tests.support.scripted_turns import Turn

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

OUTPUT = "a file\n" * 20
ANSWER = "The **answer** has `code`:\n\n```python\ndef greet():\n    return 1\n```\n\n- one\n- two\n"
STORY = "A long story with **bold** words. " * 60 + "The end."


def test_a_session_of_two_thousand_messages_stays_smooth(opened: Open, serve: Serve) -> None:
    server, _ = serve([Turn(text=STORY, delay_ms=8)])
    server.stop()
    url = f"sqlite:///{server.data}/etude.db"
    with ThreadPoolExecutor(1) as other:  # Playwright's loop runs in this thread
        short = other.submit(asyncio.run, long_session(url, server.workspace, 5)).result()
        long = other.submit(asyncio.run, long_session(url, server.workspace, 500)).result()
    server.start()
    costs: dict[str, float] = {}
    for session, turns in ((short, 5), (long, 500)):
        chat = opened(server, session)
        chat.reads(f"Answer {turns}.")
        expect(chat.page.locator(".items .item")).to_have_count(turns * 5)
        expect(chat.page.locator(".agent .prose:empty")).to_have_count(0)
        devtools = chat.context.new_cdp_session(chat.page)
        devtools.send("Performance.enable")
        before = main_thread_seconds(devtools)
        chat.send("Go on")
        expect(chat.page.locator(".agent").last).to_contain_text("The end.")
        chat.wait_for_end(turns + 1)
        costs[session] = main_thread_seconds(devtools) - before
        chat.page.locator(".scroller").evaluate("e => e.scrollTo(0, 0)")
        expect(chat.page.locator(".item.user").first).to_be_in_viewport()
        expect(chat.page.get_by_role("button", name="Latest")).to_be_visible()
        chat.page.get_by_role("button", name="Latest").click()
        expect(chat.page.locator(".agent").last).to_be_in_viewport()
    print(f"seconds of the main thread for one streamed answer: {costs}")
    assert costs[long] < 5 * costs[short] + 0.5, f"seconds of the main thread: {costs}"


def main_thread_seconds(devtools: CDPSession) -> float:
    """What the page's main thread has worked so far."""
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return next(item["value"] for item in metrics if item["name"] == "TaskDuration")


async def long_session(url: str, workspace: Path, turns: int) -> str:
    """A stored session; each turn has a question, an answer, a command with output and a last word."""
    async with await Store.open(url) as store:
        created = SessionCreated(
            workspace=str(workspace), user_id="local", model="openai:scripted", mode="auto", profile="full"
        )
        log = await store.lease(await store.create_session(created))
        for turn in range(1, turns + 1):
            stored = [
                log.submit(Draft(type=type, data=data, turn=turn, step=1)) for type, data in turn_of(turn)
            ]
            if turn % 50 == 0 or turn == turns:
                await asyncio.gather(*stored)
        await log.release()
        return log.session_id


def turn_of(turn: int) -> list[tuple[str, dict[str, Any]]]:
    call = f"call-{turn}"
    command = {"generation": "g", "name": "shell", "kind": "execute", "title": "ls"}
    result = {"name": "shell", "text": OUTPUT, "started": 1, "ended": 2}
    return [
        ("prompt", {"message_id": f"user-{turn}", "text": f"Question {turn}"}),
        ("text", {"messageId": f"first-{turn}", "offset": 0, "text": ANSWER}),
        ("tool.call", {"call_id": call, **command}),
        ("tool.output", {"call_id": call, "offset": 0, "text": OUTPUT}),
        ("tool.result", {"call_id": call, **result}),
        ("text", {"messageId": f"last-{turn}", "offset": 0, "text": f"Answer {turn}."}),
        ("turn.ended", {"reason": "end_turn", "steps": 1}),
    ]
