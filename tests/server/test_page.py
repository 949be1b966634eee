"""The chat page in a real browser, on a real server, with a scripted model behind it."""

import os
import re
import shutil
import socket
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import PHONE, ROOT, ChatPage, Open, Serve
from tests.support.scripted_turns import Turn

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

FILES = {
    "greetings.py": 'def greet(name):\n    return "helo, " + name\n',
    "test_greetings.py": "from greetings import greet\n\n\n"
    'def test_greet():\n    assert greet("Ada") == "hello, Ada"\n',
}
EDIT = {
    "name": "edit",
    "arguments": {
        "path": "greetings.py",
        "edits": [{"old": '    return "helo, " + name', "new": '    return f"hello, {name}"'}],
    },
}
ANSWER = """The greeting was missing a letter, and `greet` now builds it with an f-string:

```python
def greet(name: str) -> str:
    return f"hello, {name}"  # one l more
```

- `greetings.py` has one changed line
- the test passes

A type like `List<T>` stays as it is: <T> is no markup.
"""
STORY = "".join(f"Sentence number {number} of a long story with **bold** words. " for number in range(1, 61))


def test_a_change_from_question_to_answer(opened: Open, serve: Serve) -> None:
    command = "for i in 1 2 3; do echo line $i; sleep 0.4; done; touch seen"
    turns = [
        Turn(
            thought="First I read what is there.",
            text="I'll look at the greeting first.",
            calls=[
                {"name": "read", "arguments": {"path": "greetings.py"}},
                {"name": "grep", "arguments": {"pattern": "greet"}},
            ],
        ),
        Turn(text="There it is: a letter is missing.", calls=[EDIT]),
        Turn(calls=[{"name": "shell", "arguments": {"command": command}}]),
        Turn(text=ANSWER, delay_ms=2),
    ]
    server, _ = serve(turns, files=FILES)
    chat = opened(server)
    page = chat.page
    expect(page.get_by_role("heading", name="What shall we work on?")).to_be_visible()
    assert "code=" not in page.url, "the one-time code stays out of the address"
    chat.send("The greeting is wrong. Please fix it and run the tests.")

    question = page.locator(".approval")
    expect(question).to_contain_text("May Etude make this change?")
    expect(question.locator(".diff-line.remove")).to_contain_text('return "helo, " + name')
    expect(question.locator(".diff-line.add")).to_contain_text('return f"hello, {name}"')
    expect(question.locator("[data-kind=allow_once]")).to_be_focused()
    assert page.title().startswith("● ")
    page.keyboard.press("y")

    expect(page.locator(".approval-command")).to_have_text(command)
    page.keyboard.press("y")
    running = page.locator('.tool[data-sort=execute][data-phase="running"] .terminal')
    expect(running).to_contain_text("line 1")
    assert "line 3" not in running.inner_text(), "output is shown while the command still runs"
    chat.reads("no markup")
    chat.wait_for_end()

    assert page.locator(".tool[data-phase=done]").count() == 4
    assert "line 3" in page.locator(".tool[data-sort=execute] .terminal").inner_text()
    expect(page.locator(".prose .code .hljs-keyword").first).to_have_text("def")
    expect(page.locator(".agent").last).to_contain_text(
        "A type like List<T> stays as it is: <T> is no markup."
    )
    expect(page.locator(".folded summary")).to_contain_text("Thought")
    expect(page.locator(".meter")).to_be_visible()
    assert (
        server.workspace / "greetings.py"
    ).read_text() == 'def greet(name):\n    return f"hello, {name}"\n'
    assert chat.transcript() == opened(server, chat.session).transcript_at_end(chat)


def test_streaming_shows_every_part_as_it_comes(opened: Open, serve: Serve) -> None:
    server, _ = serve([Turn(text=STORY, delay_ms=4)])
    chat = opened(server)
    chat.send("Tell me a story")
    chat.reads("Sentence number 2 ")
    lengths: list[int] = []
    while "Sentence number 60" not in (text := chat.page.locator(".agent").inner_text()):
        lengths.append(len(text))
        time.sleep(0.05)
    assert len(set(lengths)) > 5, f"the text came in steps of {lengths}"
    assert lengths == sorted(lengths)
    chat.wait_for_end()
    assert chat.page.locator(".agent strong").count() == 60
    scroller = chat.page.locator(".scroller")
    assert scroller.evaluate("e => e.scrollTop + e.clientHeight >= e.scrollHeight - 2"), "the end is in view"


@pytest.mark.case("agent-1")
def test_a_reload_in_the_middle_of_a_turn_changes_nothing(opened: Open, serve: Serve) -> None:
    turns = [
        Turn(text="First a look.", calls=[{"name": "read", "arguments": {"path": "greetings.py"}}]),
        Turn(text=STORY, thought="Let me think. " * 20, delay_ms=5),
    ]
    server, _ = serve(turns, files=FILES)
    chat = opened(server)
    chat.send("Tell me a story")
    witness = opened(server, chat.session)
    for sentence in (3, 17, 29):
        chat.reads(f"Sentence number {sentence} ")
        chat.page.reload()
    chat.wait_for_end()
    witness.wait_for_end()
    assert chat.transcript() == witness.transcript()
    assert chat.page.locator(".agent strong").count() == 60
    assert [event["type"] for event in server.events(chat.session)].count("prompt") == 1


@pytest.mark.case("agent-4")
def test_the_page_survives_a_killed_server(opened: Open, serve: Serve) -> None:
    turns = [Turn(text=STORY, delay_ms=15), Turn(text="And here it goes on.")]
    server, _ = serve(turns, "--port", str(free_port()))
    chat = opened(server)
    chat.send("Tell me a story")
    chat.reads("Sentence number 9 ")
    server.kill()
    expect(chat.page.locator(".banner")).to_contain_text("The server cannot be reached")
    chat.send("Are you there?")
    expect(chat.page.locator(".outgoing .user-text")).to_have_text("Are you there?")
    server.start()
    chat.reads("The server stopped during this turn.")
    chat.reads("And here it goes on.")
    chat.wait_for_end(turns=2)
    expect(chat.page.locator(".banner")).to_be_hidden()
    expect(chat.page.locator(".outgoing")).to_have_count(0)
    stored = "".join(e["data"]["text"] for e in server.events(chat.session) if e["type"] == "text")
    assert "Sentence number 9 " in stored
    assert chat.transcript() == opened(server, chat.session).transcript_at_end(chat)
    # A browser reports what a dead server does to its requests: refused, or cut while it died.
    chat.problems = [text for text in chat.problems if "net::ERR_CONNECTION_" not in text]


def test_queue_steer_and_stop(opened: Open, serve: Serve) -> None:
    turns = [
        Turn(
            text="Working on it.", calls=[{"name": "shell", "arguments": {"command": "sleep 3; touch slept"}}]
        ),
        Turn(text="Taken into account."),
        Turn(text=STORY, delay_ms=25),
    ]
    server, model = serve(turns)
    chat = opened(server)
    page = chat.page
    chat.send("Do something slow")
    page.locator(".approval [data-kind=allow_once]").click()
    expect(page.locator(".tool[data-phase=running]")).to_have_count(1)
    chat.send("Then tell me a story")
    expect(page.locator(".queue")).to_contain_text("Then tell me a story")
    chat.send("Be careful", key="Control+Enter")
    added = page.locator(".item.user", has_text="Be careful")
    expect(added).to_contain_text("added while working")
    chat.reads("Taken into account.")
    expect(page.locator(".queue")).to_be_hidden()
    chat.reads("Sentence number 2 ")
    page.press(".composer textarea", "Escape")
    chat.reads("Stopped.")
    chat.wait_for_end(turns=2)
    assert page.locator(".measure", has_text=re.compile(r"\d")).all_inner_texts() == ["1", "2"]
    assert "Be careful" in str(model.requests[1]["messages"])
    ends = [e["data"]["reason"] for e in server.events(chat.session) if e["type"] == "turn.ended"]
    assert ends == ["end_turn", "cancelled"]


def test_a_denied_change_is_not_made(opened: Open, serve: Serve) -> None:
    server, _ = serve([Turn(calls=[EDIT]), Turn(text="Then I leave it.")], files=FILES)
    chat = opened(server)
    chat.send("Fix it")
    expect(chat.page.locator(".approval")).to_be_visible()
    other = opened(server, chat.session)
    expect(other.page.locator(".approval")).to_be_visible()
    chat.page.keyboard.press("n")
    chat.wait_for_end()
    expect(other.page.locator(".approval")).to_have_count(0)
    expect(chat.page.locator(".tool")).to_have_attribute("data-phase", "denied")
    assert (server.workspace / "greetings.py").read_text() == FILES["greetings.py"]


def test_what_a_model_writes_is_never_run(opened: Open, serve: Serve) -> None:
    hostile = (
        '<img src=x onerror="document.title=1"> <script>document.title=2</script>\n\n'
        "[a link](javascript:document.title=3) ![a picture](https://example.invalid/p.png)\n\n"
        '<div style="position:fixed" onclick="document.title=4">covered</div>\n\n'
        "[fine](https://example.invalid/page) and <https://example.invalid/auto>\n"
    )
    server, _ = serve([Turn(text=hostile)])
    chat = opened(server)
    chat.send("<b>Hello</b>")
    chat.wait_for_end()
    answer = chat.page.locator(".agent .prose")
    expect(answer).to_contain_text('<div style="position:fixed"')
    assert answer.locator("img, script, div, [style], [onclick], [onerror]").count() == 0
    links = answer.locator("a[href]")
    assert links.evaluate_all("links => links.map((link) => [link.href, link.rel])") == [
        ["https://example.invalid/p.png", "noopener noreferrer"],
        ["https://example.invalid/page", "noopener noreferrer"],
        ["https://example.invalid/auto", "noopener noreferrer"],
    ]
    expect(chat.page.locator(".user-text")).to_have_text("<b>Hello</b>")
    assert "Hello" in chat.page.title()


def test_mode_chosen_before_and_during_a_session(opened: Open, serve: Serve) -> None:
    server, _ = serve([Turn(calls=[EDIT]), Turn(text="Done.")], files=FILES)
    chat = opened(server)
    page = chat.page
    page.get_by_role("radio", name="Auto").click()
    chat.send("Fix it")
    chat.wait_for_end()
    assert "hello" in (server.workspace / "greetings.py").read_text(), "auto does not ask"
    expect(page.get_by_role("radio", name="Auto")).to_be_checked()
    page.get_by_role("radio", name="Plan").click()
    expect(page.get_by_role("radio", name="Plan")).to_be_checked()
    page.reload()
    expect(page.get_by_role("radio", name="Plan")).to_be_checked()
    modes = [e["data"].get("mode") for e in server.events(chat.session) if e["type"] == "config.changed"]
    assert modes == ["auto", "plan"]


def test_a_model_that_fails_is_explained(opened: Open, serve: Serve) -> None:
    failure = Turn(status=401, error={"error": {"message": "Incorrect API key provided."}})
    server, _ = serve([failure])
    chat = opened(server)
    chat.send("Hello")
    expect(chat.page.locator(".notice.error").last).to_contain_text("Incorrect API key provided.")
    expect(chat.page.locator(".round.stop")).to_be_hidden()


def test_sessions_are_listed_opened_and_deleted(opened: Open, serve: Serve) -> None:
    server, _ = serve(lambda body: Turn(text="Answer."))
    chat = opened(server)
    page = chat.page
    chat.send("The first question")
    chat.wait_for_end()
    first = chat.session
    page.keyboard.press("Alt+n")
    expect(page.get_by_role("heading", name="What shall we work on?")).to_be_visible()
    chat.send("The second question")
    chat.wait_for_end()
    assert chat.session != first
    titles = page.locator(".session-title")
    expect(titles).to_have_text(["The second question", "The first question"])
    page.locator(".session", has_text="The first question").click()
    chat.reads("The first question")
    assert chat.session == first
    page.go_back()
    chat.reads("The second question")
    page.reload()
    expect(titles).to_have_text(["The second question", "The first question"])
    row = page.locator(".session-groups li", has_text="The second question")
    row.hover()
    row.get_by_role("button", name="Delete").click()
    row.get_by_role("button", name="Really delete").click()
    expect(titles).to_have_text(["The first question"])
    expect(page.get_by_role("heading", name="What shall we work on?")).to_be_visible()


def test_keyboard_alone_is_enough(opened: Open, serve: Serve) -> None:
    server, _ = serve([Turn(calls=[EDIT]), Turn(text="Done.")], files=FILES)
    chat = opened(server)
    keyboard = chat.page.keyboard
    expect(chat.page.locator(".composer textarea")).to_be_focused()
    keyboard.type("Fix it")
    keyboard.press("Shift+Enter")
    keyboard.type("please")
    keyboard.press("Enter")
    expect(chat.page.locator(".approval [data-kind=allow_once]")).to_be_focused()
    keyboard.press("ArrowRight")
    expect(chat.page.locator(".approval [data-kind=allow_always]")).to_be_focused()
    keyboard.press("Enter")
    chat.wait_for_end()
    expect(chat.page.locator(".composer textarea")).to_be_focused()
    assert server.events(chat.session)[1]["data"]["text"] == "Fix it\nplease"
    keyboard.press("Alt+s")
    expect(chat.page.locator(".sidebar")).to_be_hidden()
    chat.page.locator(".scroller").focus()
    keyboard.press("?")
    expect(chat.page.get_by_role("dialog", name="Keys")).to_be_visible()
    keyboard.press("Escape")
    expect(chat.page.get_by_role("status").last).to_have_text("Done.")


def test_phone_and_dark(opened: Open, serve: Serve) -> None:
    server, _ = serve([Turn(text=ANSWER, calls=[EDIT]), Turn(text="Done.")], files=FILES)
    chat = opened(server, viewport=PHONE, color_scheme="dark", has_touch=True)
    page = chat.page
    assert luminance(background(chat)) < 0.1
    expect(page.locator(".sidebar")).to_be_hidden()
    chat.send("Fix it")
    expect(page.locator(".approval")).to_be_visible()
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= PHONE["width"], f"the page is {wide} px wide"
    small = page.eval_on_selector_all(
        ".approval button[data-kind]", "buttons => buttons.filter(b => b.offsetHeight < 40).length"
    )
    assert small == 0, "answers are large enough for a finger"
    page.get_by_role("button", name="Sessions").click()
    expect(page.locator(".sidebar")).to_be_visible()
    page.locator(".veil").click(position={"x": 370, "y": 400})
    chat.answer("allow_once")
    chat.wait_for_end()
    page.get_by_role("button", name="Colours").click()
    assert luminance(background(chat)) > 0.8, "light was asked for"
    page.reload()
    assert luminance(background(chat)) > 0.8, "and is kept"


def test_without_a_token_the_page_says_what_to_do(browser: Browser, serve: Serve) -> None:
    server, _ = serve([])
    chat = ChatPage(browser, server)
    chat.page.goto(server.url)
    expect(chat.page.get_by_role("heading", name="This page is locked")).to_be_visible()
    expect(chat.page.locator("main")).to_contain_text("etude serve")
    chat.page.goto(f"{server.url}/#code=wrong")
    chat.page.reload()
    expect(chat.page.locator("main")).to_contain_text("used before or has expired")
    chat.close()


def test_a_message_is_sent_though_the_person_moves_on_at_once(opened: Open, serve: Serve) -> None:
    server, _ = serve([Turn(text="Done.")])
    chat = opened(server)
    for words in ("The first request", "The second request"):
        chat.send(words)
        chat.page.keyboard.press("Alt+n")
    for words in ("The first request", "The second request"):
        expect(chat.page.locator(".session-title", has_text=words)).to_have_count(1)


def test_the_picture_of_the_readme(opened: Open, serve: Serve, tmp_path: Path) -> None:
    turns = [
        Turn(
            thought="The test names the expected greeting. I compare it with the code.",
            text="I'll read the test and the code it checks.",
            calls=[
                {"name": "read", "arguments": {"path": "test_greetings.py"}},
                {"name": "read", "arguments": {"path": "greetings.py"}},
            ],
        ),
        Turn(text="The greeting is missing a letter. I'll fix it and run the test.", calls=[EDIT]),
        Turn(calls=[{"name": "shell", "arguments": {"command": "python3 -m unittest -v smoke"}}]),
        Turn(text="Fixed: `greet` returned “helo”. One line changed in `greetings.py`, and the test passes."),
    ]
    smoke = (
        "import unittest\nfrom greetings import greet\n\n\nclass Greetings(unittest.TestCase):\n"
        '    def test_greet(self):\n        self.assertEqual(greet("Ada"), "hello, Ada")\n'
    )
    files = {**FILES, "smoke.py": smoke}
    server, _ = serve([Turn(text="Done."), Turn(text="Done."), *turns], files=files)
    chat = opened(server, viewport={"width": 1280, "height": 900}, device_scale_factor=1.5)
    for earlier in ("Where is the configuration read?", "Add a --json flag to the report command"):
        chat.send(earlier)
        chat.wait_for_end()
        chat.page.keyboard.press("Alt+n")
    chat.send("test_greet fails. Find out why and fix it.")
    chat.answer("allow_once")
    expect(chat.page.locator(".approval-command")).to_be_visible()
    chat.answer("allow_once")
    chat.wait_for_end()
    expect(chat.page.locator(".tool[data-sort=execute] .terminal")).to_contain_text("OK")
    chat.page.locator(".scroller").evaluate("e => e.scrollTo(0, 0)")
    taken = tmp_path / "chat.png"
    chat.page.screenshot(path=taken)
    assert taken.stat().st_size > 20_000
    picture = ROOT / "docs" / "images" / "chat.png"
    if os.environ.get("ETUDE_PICTURES") or not picture.exists():
        picture.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(taken, picture)


def background(chat: ChatPage) -> str:
    return chat.page.evaluate("getComputedStyle(document.body).backgroundColor")


def luminance(colour: str) -> float:
    """Mean of the channels of `rgb(r, g, b)`, from 0 to 1."""
    channels = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    return sum(channels) / 3 / 255


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
