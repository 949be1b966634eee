"""The agent's questions on the chat page, in a real browser, and what else it shows of a session's events."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, WebSocketRoute, expect

from tests.support.browser import PHONE, ROOT, ChatPage, Open, Serve
from tests.support.scripted_turns import Turn
from tests.support.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

HOSTILE = "Which <b>colour</b>?\n<img src=x onerror=\"document.title='run'\">"


def ask(question: str, *options: str) -> dict[str, Any]:
    return {"name": "ask", "arguments": {"question": question, **({"options": options} if options else {})}}


def card(chat: ChatPage, question: str) -> Locator:
    return chat.page.locator(".question", has_text=question)


def field(chat: ChatPage, question: str) -> Locator:
    return card(chat, question).locator("textarea")


def answers(model: Any, request: int = 1) -> list[str]:
    """What the model was told of its questions."""
    messages = model.requests[request]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_an_option_is_chosen(opened: Open, serve: Serve) -> None:
    turns = [Turn(calls=[ask(HOSTILE, "<i>red</i>", "blue")]), Turn(text="Then it is red.")]
    server, model = serve(turns)
    chat = opened(server)
    chat.send("Paint it")
    question = card(chat, "colour")
    expect(question.locator(".question-text")).to_have_text(HOSTILE, use_inner_text=True)
    assert question.locator("b, i, img").count() == 0, "text is no markup"
    expect(question).to_have_accessible_name(HOSTILE.replace("\n", " "))
    expect(question.locator("textarea")).to_be_focused()
    expect(question.locator("textarea")).to_have_accessible_name("Or say")
    expect(chat.page.get_by_role("status").last).to_contain_text("Etude asks: Which <b>colour</b>?")
    expect(chat.page.locator(".tool[data-phase=waiting]")).to_contain_text("waits for you")
    expect(chat.page.locator(".working")).to_be_hidden()
    assert chat.page.title().startswith("● ")
    question.get_by_role("button", name="<i>red</i>").click()
    expect(chat.page.locator(".question")).to_have_count(0)
    expect(chat.page.locator(".composer textarea")).to_be_focused()
    chat.wait_for_end()
    assert answers(model) == ["<i>red</i>"]
    expect(chat.page.locator(".tool[data-phase=done] .tool-asked")).to_have_text(HOSTILE)
    expect(chat.page.locator(".tool[data-phase=done] .tool-answer")).to_have_text("<i>red</i>")
    assert chat.transcript() == opened(server, chat.session).transcript_at_end(chat)


def test_keys_alone_answer_in_own_words_and_skip(opened: Open, serve: Serve) -> None:
    turns = [
        Turn(calls=[ask("What is it called?")]),
        Turn(calls=[ask("Which one?", "the first", "the second")]),
        Turn(calls=[ask("Anything else?")]),
        Turn(text="Done."),
    ]
    server, model = serve(turns)
    chat = opened(server)
    keyboard = chat.page.keyboard
    chat.send("Name it")
    expect(field(chat, "What is it called?")).to_be_focused()
    keyboard.press("Enter")
    keyboard.type("Etude")
    keyboard.press("Shift+Enter")
    keyboard.type("in C <major>")
    keyboard.press("Enter")

    expect(field(chat, "Which one?")).to_be_focused()
    keyboard.press("ArrowUp")
    expect(chat.page.get_by_role("button", name="the second")).to_be_focused()
    keyboard.press("ArrowUp")
    expect(chat.page.get_by_role("button", name="the first")).to_be_focused()
    keyboard.press("Tab")
    keyboard.press("Tab")
    expect(field(chat, "Which one?")).to_be_focused()
    keyboard.type("but slower")
    keyboard.press("Shift+Tab")
    keyboard.press("Enter")

    expect(field(chat, "Anything else?")).to_be_focused()
    keyboard.press("Alt+s")
    chat.page.locator(".composer textarea").focus()
    keyboard.press("Alt+a")
    expect(field(chat, "Anything else?")).to_be_focused()
    keyboard.press("Escape")
    chat.wait_for_end()
    told = [answers(model, request)[-1] for request in (1, 2, 3)]
    assert told[:2] == ["Etude\nin C <major>", "the second: but slower"]
    assert "did not answer (declined)" in told[2]
    expect(chat.page.locator(".tool[data-phase=skipped]")).to_contain_text("no answer")
    reasons = [e["data"]["reason"] for e in server.events(chat.session) if e["type"] == "turn.ended"]
    assert reasons == ["end_turn"], "Escape skipped the question and did not stop the turn"


def test_several_at_once_on_two_pages(opened: Open, serve: Serve) -> None:
    calls = [ask("First?"), ask("Second?", "yes", "no"), ask("Third?")]
    server, model = serve([Turn(calls=calls), Turn(text="Thank you.")])
    chat = opened(server)
    chat.send("Ask me")
    expect(chat.page.locator(".question")).to_have_count(3)
    other = opened(server, chat.session)
    expect(other.page.locator(".question")).to_have_count(3)
    field(chat, "First?").fill("not yet sent")
    field(other, "Third?").fill("from the other page")
    field(other, "Third?").press("Enter")
    expect(card(chat, "Third?")).to_have_count(0)
    expect(field(chat, "First?")).to_have_value("not yet sent")
    expect(field(other, "First?")).to_be_focused()

    chat.page.reload()
    expect(chat.page.locator(".question-text")).to_have_text(["First?", "Second?"])
    field(chat, "First?").fill("kept while away")
    chat.page.keyboard.press("Alt+n")
    expect(chat.page.locator(".question")).to_have_count(0)
    expect(chat.page.locator(".session-dot.waiting")).to_have_count(1)
    chat.page.go_back()
    expect(field(chat, "First?")).to_have_value("kept while away")

    field(chat, "First?").press("Enter")
    expect(field(chat, "Second?")).to_be_focused()
    card(other, "Second?").get_by_role("button", name="no").click()
    chat.wait_for_end()
    expect(chat.page.locator(".question")).to_have_count(0)
    expect(other.page.locator(".question")).to_have_count(0)
    assert sorted(answers(model)) == ["from the other page", "kept while away", "no"]


def test_a_stopped_turn_takes_its_question_back(opened: Open, serve: Serve) -> None:
    server, _ = serve([Turn(calls=[ask("Shall I wait?")]), Turn(text="Never said.")])
    chat = opened(server)
    chat.send("Wait")
    expect(field(chat, "Shall I wait?")).to_be_focused()
    chat.page.get_by_role("button", name="Stop").click()
    expect(chat.page.locator(".question")).to_have_count(0)
    chat.wait_for_end()
    chat.reads("Stopped.")
    expect(chat.page.locator(".tool")).to_have_attribute("data-phase", "skipped")


def test_what_is_written_survives_a_broken_connection(opened: Open, serve: Serve) -> None:
    server, model = serve([Turn(calls=[ask("Still there?", "yes", "no")]), Turn(text="Good.")])
    chat = opened(server)
    sockets: list[WebSocketRoute] = []
    broken = False

    def connect(page_side: WebSocketRoute) -> None:
        if broken:
            page_side.close(code=1011, reason="broken")
        else:
            sockets.extend((page_side, page_side.connect_to_server()))

    chat.page.route_web_socket("**/acp", connect)
    chat.page.reload()
    chat.send("Check")
    field(chat, "Still there?").fill("I am")
    broken = True
    for side in sockets[-2:]:
        side.close(code=1011, reason="broken")
    expect(chat.page.locator(".banner")).to_be_visible()
    expect(chat.page.get_by_role("button", name="yes")).to_be_disabled()
    field(chat, "Still there?").press("End")
    chat.page.keyboard.type(" here")
    chat.page.keyboard.press("Enter")
    broken = False
    expect(chat.page.locator(".banner")).to_be_hidden()
    expect(chat.page.get_by_role("button", name="yes")).to_be_enabled()
    expect(field(chat, "Still there?")).to_have_value("I am here")
    field(chat, "Still there?").press("Enter")
    chat.wait_for_end()
    assert answers(model) == ["I am here"]


def test_a_question_fits_a_phone_in_the_dark(opened: Open, serve: Serve) -> None:
    options = [f"option {number} " + "of a long text " * 12 for number in range(8)]
    server, _ = serve([Turn(calls=[ask("Why? " * 700, *options)]), Turn(text="Done.")])
    chat = opened(server, viewport=PHONE, color_scheme="dark", has_touch=True)
    chat.send("Go")
    question = chat.page.locator(".question")
    expect(question).to_be_visible()
    assert chat.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert chat.page.locator(".questions").bounding_box()["height"] <= 0.6 * PHONE["height"] + 1  # type: ignore[index]
    expect(chat.page.locator(".composer textarea")).to_be_in_viewport()
    paper = question.evaluate("e => getComputedStyle(e).backgroundColor")
    assert paper == "rgb(28, 34, 32)"
    heights = question.locator("button").evaluate_all("buttons => buttons.map((b) => b.offsetHeight)")
    assert min(heights) >= 40, "answers are large enough for a finger"
    question.get_by_role("button", name="option 7").click()
    chat.wait_for_end()


def test_every_tool_and_event_has_its_place(opened: Open, serve: Serve) -> None:
    def items(*statuses: str) -> dict[str, Any]:
        names = ("read", "change", "publish")
        listed = [{"content": name, "status": status} for name, status in zip(names, statuses, strict=True)]
        return {"name": "todo", "arguments": {"items": listed}}

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"name": name, "arguments": arguments}

    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-def one():\n+def two():\n*** End Patch\n"
    turns = [
        Turn(calls=[items("in_progress", "pending", "cancelled")]),
        Turn(
            calls=[
                call("list"),
                call("glob", pattern="*.py"),
                call("symbols", path="a.py"),
                call("search", query="what returns one"),
            ]
        ),
        Turn(calls=[call("read", path="a.py")]),
        Turn(calls=[call("apply_patch", patch=patch)]),
        Turn(calls=[call("write", path="new.py", content="x = 1\n")]),
        Turn(calls=[call("move", source="new.py", target="moved.py")]),
        Turn(calls=[call("delete", path="old.py")]),
        Turn(calls=[call("shell", command="cat", background=True, tty=True)]),
        Turn(calls=[call("shell_send", job="1", text="hello\n")]),
        Turn(calls=[call("shell_read", job="1")]),
        Turn(calls=[call("shell_kill", job="1")]),
        Turn(calls=[call("diagnostics", paths=["a.py"])]),
        Turn(calls=[items("completed", "in_progress", "cancelled")]),
        Turn(text="All of it."),
        Turn(text="I saw it."),
    ]
    files = {"a.py": "def one():\n    return 1\n", "old.py": "y = 2\n"}
    server, _ = serve(turns, files=files)
    chat = opened(server)
    page = chat.page
    page.get_by_role("radio", name="Full").click()
    chat.send("Use everything")
    chat.wait_for_end()
    (server.workspace / "mine.py").write_text("z = 3\n")
    chat.send("Look again")
    chat.wait_for_end(turns=2)
    with ThreadPoolExecutor(1) as other:  # Playwright's loop runs in this thread
        other.submit(asyncio.run, undo(server, chat.session)).result()
    expect(page.locator(".notice.info")).to_contain_text("Changes were taken back: ")

    types = {event["type"] for event in server.events(chat.session)}
    assert {"checkpoint", "user_edit", "restored", "todo"} <= types
    cards = page.locator(".tool")
    titles = cards.locator(".tool-title").all_inner_texts()
    assert len(set(titles)) == len(titles) == 16
    assert "" not in titles and "Tool call" not in titles
    assert cards.and_(page.locator(":not([data-phase=done])")).all_inner_texts() == []
    assert page.locator(".tool .tool-icon svg path").count() == 16
    expect(page.locator(".plan-current")).to_have_text("change")
    expect(page.locator(".plan-count")).to_have_text("1 of 2")
    kinds = page.locator(".items[role=log] .item:not([hidden])").evaluate_all(
        "all => all.map((e) => e.className.split(' ')[1])"
    )
    assert sorted(kinds) == sorted(["tool"] * 16 + ["user", "agent", "notice"] * 2 + ["notice"])
    assert chat.transcript() == opened(server, chat.session).transcript_at_end(chat)


def test_a_call_of_another_program_is_shown_whole_and_asked_for(
    opened: Open, serve: Serve, tmp_path: Path
) -> None:
    turns = [Turn(calls=[{"name": "mcp__sums__add", "arguments": {"a": 2, "b": 3}}]), Turn(text="Five.")]
    script = str(ROOT / "tests" / "support" / "mcp_server.py")
    settings = f"[mcp.sums]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps([script])}\n"
    (tmp_path / "etude.toml").write_text(settings)
    server, model = serve(turns, env={"ETUDE_CONFIG": str(tmp_path / "etude.toml")})
    chat = opened(server)
    chat.send("Add two and three")
    approval = chat.page.locator(".approval")
    expect(approval).to_contain_text("May Etude make this call?")
    expect(approval.locator(".approval-command")).to_have_text('sums: add {"a":2,"b":3}')
    chat.answer("allow_once")
    chat.wait_for_end()
    expect(chat.page.locator(".tool[data-phase=done] .tool-title")).to_contain_text("sums: add")
    assert answers(model) == ["5"]


async def undo(server: Served, session: str) -> None:
    async with server.client() as client:
        await client.call("initialize", protocolVersion=1, clientCapabilities={})
        await client.call("_etude/attach", sessionId=session, afterSeq=0)
        await client.call("_etude/feedback", sessionId=session, target={"turn": 1}, kind="undo")
