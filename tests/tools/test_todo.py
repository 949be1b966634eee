"""The agent's to-do list as the tool checks it."""

import json
from pathlib import Path

import pytest

from tools.errors import InvalidArguments
from tools.sandbox.policy import SandboxPolicy
from tools.todo import Todo
from tools.workspace import Workspace


async def keep(root: Path, *items: tuple[str, str]) -> tuple[str, list[dict[str, str]]]:
    listed = [{"content": content, "status": status} for content, status in items]
    parsed, workspace = Todo.parse(json.dumps({"items": listed})), Workspace(root, SandboxPolicy())
    await Todo().propose(parsed, workspace)
    result = await Todo().run(parsed, workspace, lambda text: None)
    return result.text, result.data["todos"]


async def test_the_list_is_repeated_with_its_state(tmp_path: Path) -> None:
    text, items = await keep(
        tmp_path, ("read  the\ncode", "completed"), ("fix", "in_progress"), ("test", "pending")
    )
    assert text == "1 of 3 done\n[x] read the code\n[>] fix\n[ ] test"
    assert items[0] == {"content": "read the code", "status": "completed"}
    assert await keep(tmp_path) == ("The list is empty", [])
    given_up, _ = await keep(tmp_path, ("read", "completed"), ("fix", "cancelled"), ("test", "pending"))
    assert given_up.startswith("1 of 2 done\n"), "what was given up is neither done nor to be done"


@pytest.mark.parametrize(
    "items",
    [
        [{"content": "a", "status": "doing"}],
        [{"content": " \n", "status": "pending"}],
        [{"content": "x" * 501, "status": "pending"}],
        [{"content": "a", "status": "pending", "owner": "me"}],
        [{"content": f"{number}", "status": "pending"} for number in range(101)],
    ],
)
def test_what_is_no_list_is_refused(items: list[dict[str, str]]) -> None:
    with pytest.raises(InvalidArguments, match="items"):
        Todo.parse(json.dumps({"items": items}))


async def test_each_thing_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidArguments, match="'a b' is on the list twice"):
        await keep(tmp_path, ("a b", "pending"), ("a  b", "completed"))
