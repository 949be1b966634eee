"""Which tools there are, and which of them each profile offers."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from tools.apply_patch import ApplyPatch
from tools.ask import Ask
from tools.delete import Delete
from tools.diagnostics.tool import Diagnostics
from tools.edit import Edit
from tools.glob import Glob
from tools.grep import Grep
from tools.listing import List
from tools.move import Move
from tools.read import Read
from tools.search import Search
from tools.shell import Shell
from tools.shell_kill import ShellKill
from tools.shell_read import ShellRead
from tools.shell_send import ShellSend
from tools.summarize import Summarize
from tools.symbols import Symbols
from tools.todo import Todo
from tools.tool import Tool
from tools.write import Write

Profile = Literal["full", "compact"]
"""`full` offers every tool and describes it at length; `compact` fits small models (≤ 500 prompt tokens in
all)."""

OUTPUT_LIMITS: dict[Profile, int] = {"full": 48 * 1024, "compact": 4_000}
"""Bytes that one result may show."""

TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Read(),
        List(),
        Glob(),
        Grep(),
        Symbols(),
        Search(),
        Edit(),
        ApplyPatch(),
        Write(),
        Delete(),
        Move(),
        Shell(),
        ShellRead(),
        ShellSend(),
        ShellKill(),
        Diagnostics(),
        Todo(),
        Ask(),
        Summarize(),
    )
}
"""All of them, in the order in which prompts list them."""

COMPACT: Final = frozenset(("read", "grep", "edit", "shell"))


def offered(profile: Profile) -> dict[str, Tool]:
    """The tools of a profile, in a fixed order, so that prompts share their prefix."""
    return {name: tool for name, tool in TOOLS.items() if profile == "full" or name in COMPACT}


def schemas(profile: Profile, extra: Mapping[str, Tool] | None = None) -> list[dict[str, Any]]:
    """Function definitions of the tools of a profile, then of `extra` ones."""
    tools = [*offered(profile).values(), *(extra or {}).values()]
    return [tool.schema(brief=profile == "compact") for tool in tools]
