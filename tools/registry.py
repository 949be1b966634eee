"""Which tools there are, and which of them each profile offers."""

from typing import Literal

from tools.edit import Edit
from tools.grep import Grep
from tools.read import Read
from tools.shell import Shell
from tools.tool import Tool

Profile = Literal["full", "compact"]
"""`full` describes every tool at length; `compact` fits small models (≤ 500 prompt tokens in all)."""

OUTPUT_LIMITS: dict[Profile, int] = {"full": 48 * 1024, "compact": 4_000}
"""Bytes that one result may show."""

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (Read(), Grep(), Edit(), Shell())}


def schemas(profile: Profile) -> list[dict[str, object]]:
    """Function definitions in a fixed order, so that prompts share their prefix."""
    return [tool.schema(brief=profile == "compact") for tool in TOOLS.values()]
