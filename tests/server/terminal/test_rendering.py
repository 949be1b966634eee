"""What a terminal shows: markdown as it streams, diffs, safe text, tool cards."""

import io
import re

import pytest

from server.terminal.conversation import Ended, Item
from server.terminal.diff import unified
from server.terminal.facts import Facts
from server.terminal.markdown import MarkdownStream
from server.terminal.screen import Screen
from server.terminal.style import Style, clean, one_line

MESSAGE = """# A heading
Some **bold** and `code` and a * star and 2 ** 3.

```python
x = "**not bold**"
```
- item with ``a ` b``
"""


def painted(pieces: list[str], *, colour: bool = True) -> str:
    shown: list[str] = []
    stream = MarkdownStream(shown.append, Style(colour))
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    return "".join(shown)


def cells(text: str) -> list[tuple[str, str]]:
    """Each character with the colour it is shown in."""
    found, code = [], "0"
    for part in re.split(r"(\x1b\[\d+m)", text):
        if part.startswith("\x1b["):
            code = part[2:-1]
        else:
            found += [(character, code) for character in part]
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_pieces_do_not_change_what_is_shown(size: int) -> None:
    """However a message is cut while it streams, its text is all there and painted the same."""
    pieces = [MESSAGE[at : at + size] for at in range(0, len(MESSAGE), size)]
    shown = cells(painted(pieces))
    assert shown == cells(painted([MESSAGE]))
    assert "".join(character for character, _ in shown) == MESSAGE
    bold = "".join(character for character, code in shown if code == "1")
    code = "".join(character for character, code in shown if code == "36")
    assert bold == "# A heading**bold**"
    assert code == '`code`x = "**not bold**"``a ` b``'


def test_without_colour_the_text_is_unchanged() -> None:
    assert painted([MESSAGE], colour=False) == MESSAGE


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a\x1b[31mb\x1b[0m", "ab"),
        ("\x1b]0;title\x07x\x1b]8;;http://e\x1b\\y", "xy"),
        ("a\rb\x07\x08c\x7f\x9b2J", "abc2J"),
        ("tab\tand\nline\r\nend", "tab\tand\nline\nend"),
        ("é漢字🙂", "é漢字🙂"),
    ],
)
def test_control_sequences_are_taken_out(text: str, safe: str) -> None:
    assert clean(text) == safe


def test_one_line_is_one_line() -> None:
    assert one_line("  first\nsecond", 80) == "first"
    assert one_line("x" * 20, 10) == "x" * 9 + "…"


def test_a_diff_of_each_kind() -> None:
    plain = Style(False)
    assert unified("a.py", "x\ny\n", "x\nz\n", plain) == ["a.py  +1 -1", "@@ -1,2 +1,2 @@", " x", "-y", "+z"]
    assert unified("a.py", None, "x\n", plain)[0] == "new file a.py  +1 -0"
    assert unified("a.py", "x\n", None, plain)[0] == "deleted a.py  +0 -1"
    long = unified("a.py", None, "x\n" * 1000, plain)
    assert len(long) == 202
    assert long[-1] == "… 801 more lines"
    evil = unified("a\x1b[2J.py", "a\n", "b\x1b]0;x\x07\n", plain)
    assert "\x1b" not in "".join(evil)


NINE = "\n".join(map(str, range(9)))


def update(session_update: str, **fields: object) -> Item:
    return Item("update", {"update": {"sessionUpdate": session_update, **fields}})


def content(text: str) -> list[dict[str, object]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def test_a_conversation_on_a_screen() -> None:
    out, facts = io.StringIO(), Facts()
    screen = Screen(out)
    items = [
        update("agent_message_chunk", messageId="m1", content={"type": "text", "text": "I will "}),
        update("agent_message_chunk", messageId="m1", content={"type": "text", "text": "look."}),
        update("tool_call", toolCallId="c1", title="shell make test", kind="execute"),
        update("tool_call_update", toolCallId="c1", status="in_progress", content=content("live")),
        update(
            "tool_call_update", toolCallId="c1", status="completed",
            content=content(NINE), rawOutput={"exit_code": 0},
        ),
        update("tool_call", toolCallId="c2", title="edit a.py", kind="edit"),
        update(
            "tool_call_update", toolCallId="c2", status="in_progress",
            content=[{"type": "diff", "path": "/w/a.py", "oldText": "x\n", "newText": "y\n"}],
        ),
        update("tool_call_update", toolCallId="c2", status="completed"),
        update("tool_call", toolCallId="c3", title="read nowhere", kind="read"),
        update("tool_call_update", toolCallId="c3", status="failed", content=content("no such file")),
        update("plan", entries=[{"content": "first", "status": "completed"}, {"content": "then"}]),
        update("usage_update", used=500, size=1000),
        Item("event", {"type": "error", "data": {"where": "model", "message": "busy", "retry": 1}}),
        update("agent_message_chunk", messageId="m2", content={"type": "text", "text": "Done."}),
    ]  # fmt: skip
    for item in items:
        screen.show(item)
        facts.take(item)
    screen.finish(Ended("end_turn", steps=3, usage={"input": 1000, "output": 234}, cost=0.5), facts)
    assert out.getvalue().splitlines() == [
        "I will look.",
        "",
        "● shell make test",
        "  ✓ 3",
        *[f"    {number}" for number in range(4, 9)],
        "    … 3 more lines above",
        "● edit a.py",
        "  /w/a.py  +1 -1",
        "  @@ -1 +1 @@",
        "  -x",
        "  +y",
        "  ✓ done",
        "● read nowhere",
        "  ✗ no such file",
        "  ✓ first",
        "  · then",
        "! busy Trying again (1).",
        "Done.",
        "3 steps · 1,234 tokens · 50% of the window · $0.5000 · 1 file changed",
    ]
    assert facts.text == "Done."


@pytest.mark.parametrize(
    ("ended", "shown"),
    [
        (Ended("cancelled"), "! stopped"),
        (Ended("max_steps", "5 steps"), "! stopped at the step limit; send a message to go on: 5 steps"),
        (
            Ended("overlong", "the answer was cut off at the output limit; send a message to go on"),
            "! a limit of the model was reached: the answer was cut off at the output limit; "
            "send a message to go on",
        ),
        (
            Ended("malformed", "the model gave 3 empty answers in a row"),
            "! stopped, because the turn got nowhere: the model gave 3 empty answers in a row",
        ),
        (Ended("error", "the session is busy"), "✗ the session is busy"),
        (Ended("end_turn"), ""),
    ],
)
def test_how_a_turn_ended_is_said(ended: Ended, shown: str) -> None:
    out = io.StringIO()
    Screen(out).finish(ended, Facts())
    assert out.getvalue().strip() == shown


def drawn(*items: Item) -> list[str]:
    out = io.StringIO()
    screen = Screen(out)
    for item in items:
        screen.show(item)
    return out.getvalue().splitlines()


def test_results_of_parallel_calls_say_whose_they_are() -> None:
    """Calls that run together end in any order."""
    assert drawn(
        update("tool_call", toolCallId="c1", title="Search x", kind="search"),
        update("tool_call", toolCallId="c2", title="Read a.py", kind="read"),
        update("tool_call_update", toolCallId="c2", status="completed", content=content("1 x")),
        update("tool_call_update", toolCallId="c1", status="completed", content=content("a.py")),
        update("agent_message_chunk", messageId="m1", content={"type": "text", "text": "Found."}),
    ) == ["● Search x", "● Read a.py", "  ✓ 1 x", "● Search x", "  ✓ a.py", "", "Found."]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_said_of_a_command_is_shown_below_output_that_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    screen = Screen(out)
    screen.show(update("tool_call", toolCallId="c1", title="curl x.org", kind="execute"))
    screen.show(update("tool_call_update", toolCallId="c1", status="in_progress", content=content("(403)\n")))
    text = "(403)\n[exit 56 · 1 ms]\nThe network refused a connection."
    screen.show(
        update(
            "tool_call_update",
            toolCallId="c1", status="completed", content=content(text), rawOutput={"exit_code": 56},
        )
    )  # fmt: skip
    assert out.getvalue().splitlines() == [
        *("● curl x.org", "    (403)", "  ✗ [exit 56 · 1 ms]", "    The network refused a connection."),
    ]


def test_a_job_that_was_ended_on_purpose_is_no_failure() -> None:
    raw = {"exit_code": 137, "job": "1"}
    made = update(
        "tool_call_update", toolCallId="a", status="completed", content=content("ended"), rawOutput=raw
    )
    assert drawn(made)[-1] == "  ✓ ended"


def test_a_move_is_told_by_its_title() -> None:
    gone = {"type": "diff", "path": "/w/a.py", "oldText": "x\n", "newText": ""}
    come = {"type": "diff", "path": "/w/b.py", "newText": "x\n"}
    assert drawn(
        update("tool_call", toolCallId="a", title="Move a.py to b.py", kind="move"),
        update("tool_call_update", toolCallId="a", status="in_progress", content=[gone, come]),
        update("tool_call_update", toolCallId="a", status="completed"),
    ) == ["● Move a.py to b.py", "  ✓ done"]


def test_a_list_of_what_is_to_be_done_is_shown_once() -> None:
    assert drawn(
        update("tool_call", toolCallId="a", title="0 of 1 done", kind="think"),
        update("plan", entries=[{"content": "first", "status": "in_progress"}]),
        update("tool_call_update", toolCallId="a", status="completed", content=content("0 of 1\n[>] first")),
    ) == ["● 0 of 1 done", "  ▸ first", "  ✓ done"]


def test_findings_are_shown_from_their_beginning() -> None:
    made = update("tool_call_update", toolCallId="a", status="completed", content=content(NINE), rawOutput={})
    before = update("tool_call", toolCallId="a", title="Check a.py", kind="execute")
    assert drawn(before, made)[1:3] == ["  ✓ 0", "    1"]


def test_an_error_that_no_call_has_is_shown() -> None:
    shown = drawn(
        Item("event", {"type": "error", "data": {"where": "tool", "message": "MCP server 'x' is not there"}}),
        Item("event", {"type": "error", "data": {"where": "tool", "message": "of a card", "call_id": "c"}}),
    )
    assert shown == ["! MCP server 'x' is not there"]


def test_a_command_that_exits_with_an_error_is_marked_so() -> None:
    made = [
        update("tool_call_update", toolCallId=id, status="completed", content=content(id), rawOutput=raw)
        for id, raw in (("a", {"exit_code": 3}), ("b", {"exit_code": 0}), ("c", {}))
    ]
    assert [line for line in drawn(*made) if not line.startswith("●")] == ["  ✗ a", "  ✓ b", "  ✓ c"]


def test_what_is_wrong_with_a_call_is_said_once() -> None:
    error = {"where": "model", "error": "malformed_call", "message": "no tool wat", "call_id": "c1"}
    assert drawn(
        update("tool_call", toolCallId="c1", title="wat", kind="other"),
        Item("event", {"type": "error", "data": error}),
        update("tool_call_update", toolCallId="c1", status="failed", content=content("no tool wat")),
    ) == ["● wat", "  ✗ no tool wat"]


def test_a_question_repeats_nothing_and_says_what_always_means() -> None:
    """The diff that was approved is not shown again when the edit is made; a short command neither."""
    out = io.StringIO()
    screen = Screen(out)
    diff = {"type": "diff", "path": "/w/a.py", "oldText": "x\n", "newText": "y\n"}
    screen.show(update("tool_call", toolCallId="c1", title="Edit a.py", kind="edit"))
    call = {"toolCallId": "c1", "title": "Edit a.py", "kind": "edit", "content": [diff]}
    always = {"optionId": "a", "name": "Always allow all edits", "kind": "allow_always"}
    question = screen.question({"toolCall": call, "options": [always]})
    assert question == "? Make this change?  [y]es  [a]  Always allow all edits  [n]o  "
    screen.show(update("tool_call_update", toolCallId="c1", status="in_progress", content=[diff]))
    screen.show(update("tool_call_update", toolCallId="c1", status="completed"))
    screen.show(update("tool_call", toolCallId="c2", title="make test", kind="execute"))
    for command in ("make test", "make test\nmake lint"):
        raw = {"command": command}
        call = {"toolCallId": "c2", "title": "make test", "kind": "execute", "rawInput": raw}
        why = {"etude": {"reason": "`make` is not known to only read"}}
        question = screen.question({"toolCall": call, "_meta": why})
        assert question == "? Run this command?  [y]es  [n]o  "
    assert out.getvalue().splitlines() == [
        *("● Edit a.py", "  /w/a.py  +1 -1", "  @@ -1 +1 @@", "  -x", "  +y", "  ✓ done"),
        *("● make test", "  `make` is not known to only read"),
        *("  $ make test", "  $ make lint", "  `make` is not known to only read"),
    ]
