"""What code keeps across summaries, and what of it is shown in how much room."""

from typing import Any

from agent.events import Event
from agent.summary.ledger import COMMANDS_KEPT, FILES_KEPT, Ledger, both_ends


def folded(*events: tuple[str, dict[str, Any]]) -> Ledger:
    ledger = Ledger()
    for seq, (type, data) in enumerate(events, 1):
        ledger.apply(Event(session_id="S", seq=seq, ts=1, turn=1, step=1, type=type, data=data))
    return ledger


def prompt(text: str) -> tuple[str, dict[str, Any]]:
    return "prompt", {"message_id": "m", "text": text}


def edit(path: str, after: str | None = "a" * 40) -> tuple[str, dict[str, Any]]:
    return "edit", {"path": path, "after": {"hash": after} if after else None, "added": 2, "removed": 1}


def ran(id: str, command: str, **result: Any) -> list[tuple[str, dict[str, Any]]]:
    called = {"call_id": id, "name": "shell", "arguments": {"command": command}}
    return [("tool.call", called), ("tool.result", {"call_id": id, "name": "shell", **result})]


def test_everything_of_a_session_is_there() -> None:
    ledger = folded(
        prompt("make it fast"),
        ("todo", {"items": [{"content": "measure", "status": "in_progress"}]}),
        edit("a.py"),
        edit("gone.py", None),
        ("user_edit", {"path": "b.py", "after": {"hash": "b" * 40}}),
        *ran("1", "pytest -q", data={"exit_code": 2}),
        *ran("2", "sleep 99", data={"exit_code": None}, error="timeout"),
        *ran("3", "npm start", data={"job": 1, "running": True}),
        *ran("4", "npm test", data={"job": 2, "running": True}),
        ("tool.result", {"call_id": "5", "name": "shell_kill", "data": {"job": 2, "running": False}}),
        ("steered", {"message_id": "s", "text": "and small"}),
        ("restored", {"changed": ["a.py"]}),
        ("summary", {"number": 3}),
    )
    assert ledger.render(8000).splitlines() == [
        "What the user said, in their own words, the newest last:",
        "- make it fast",
        "- and small",
        "",
        "To-do list:",
        "[>] measure",
        "",
        "Files changed in this session:",
        "gone.py: deleted, +2 −1",
        "b.py: now bbbbbbbbbbbb (by the user)",
        "a.py: changed (by the user, who took your change back)",
        "",
        "Commands run:",
        "exit 2: pytest -q",
        "timeout: sleep 99",
        "",
        "Background jobs that were running:",
        "job 1: npm start",
        "",
        "Summaries so far, with this one: 4",
    ]


def test_the_newest_words_stay_whole_where_they_fit_then_the_task() -> None:
    ledger = folded(prompt("the task"), *(prompt(f"{i} " + "x" * 300) for i in range(20)), prompt("newest"))
    text = ledger.render(2000)
    assert "- the task" in text and "- newest" in text and "- 19 xxx" in text
    assert "messages left out here]" in text and "- 3 xxx" not in text
    assert folded(prompt("n" * 1500)).render(4000).count("n" * 1500) == 1


def test_open_todos_are_never_left_out_and_done_ones_are_counted() -> None:
    items = [{"content": f"done {i} " + "x" * 90, "status": "completed"} for i in range(50)]
    items += [{"content": f"open {i} " + "y" * 400, "status": "pending"} for i in range(40)]
    text = folded(("todo", {"items": items})).render(2000)
    assert all(f"[ ] open {i} " in text for i in range(40))
    assert "that are done or given up are left out]" in text


def test_it_is_bounded_and_says_what_is_missing() -> None:
    files = [edit(f"dir/file{i}.py") for i in range(FILES_KEPT + 50)]
    commands = [
        event for i in range(COMMANDS_KEPT + 30) for event in ran(str(i), f"cmd {i}", data={"exit_code": 0})
    ]
    ledger = folded(prompt("p" * 100_000), prompt("q" * 100_000), *files, *commands)
    for room in (500, 4000, 32_000):
        text = ledger.render(room)
        assert len(text) <= room + 1500
        assert "earlier ones left out]" in text
        assert f"file{FILES_KEPT + 49}.py" in text and f"cmd {COMMANDS_KEPT + 29}" in text
    assert len(ledger.files) == FILES_KEPT and len(ledger.commands) == COMMANDS_KEPT


def test_both_ends_of_a_long_text_are_kept_with_a_count() -> None:
    text = "".join(chr(97 + i % 26) for i in range(1000))
    cut = both_ends(text, 200)
    assert len(cut) <= 240 and cut.startswith(text[:50]) and cut.endswith(text[-50:])
    shown = len(cut.split("\n")[0]) + len(cut.split("\n")[2])
    assert f"[{1000 - shown} characters left out]" in cut
