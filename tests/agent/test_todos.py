"""The to-do list is part of the log and of its fold."""

from pathlib import Path
from typing import Any

from agent.state import fold
from tests.support.turns import call, data, kinds, opened, turn


async def test_the_last_list_is_the_state(root: Path, script: Any) -> None:
    first = [{"content": "look", "status": "in_progress"}, {"content": "fix", "status": "pending"}]
    last = [{"content": "look", "status": "completed"}, {"content": "fix", "status": "completed"}]
    model = script(
        [
            {"calls": [call("todo", items=first)]},
            {"calls": [call("todo", items=last)]},
            {"calls": [call("todo", items=[{"content": "look", "status": "lost"}])]},
            {"text": "done"},
        ]
    )
    async with opened(root, model, mode="plan") as session:
        events = await turn(session)
        assert session.state.todos == last, "a refused call changes nothing"
    assert [item["items"] for item in data(events, "todo")] == [first, last]
    assert fold(session.log.events).todos == last  # pyright: ignore[reportAttributeAccessIssue] - a MemoryLog
    order = [kind for kind in kinds(events) if kind in ("tool.call", "todo", "tool.result")]
    assert order == ["tool.call", "todo", "tool.result"] * 2 + ["tool.call", "tool.result"]
    results = data(events, "tool.result")
    assert results[0]["text"].startswith("0 of 2 done\n[>] look") and results[0]["data"] == {"tier": "files"}
