"""Rules, as people read them."""

import pytest

from agent.connecting import rule_of
from agent.judge.rules import stored
from agent.rule import EDITS, spoken
from tools.mcp import McpSpec


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (EDITS, "all edits"),
        (stored(("git", "log")), "`git log`"),
        (rule_of(McpSpec("my notes", command="notes")), "starting the MCP server `my_notes`"),
        ("mcp__notes__add", "the tool `mcp__notes__add`"),
    ],
)
def test_each_kind_says_what_it_allows(rule: str, said: str) -> None:
    assert spoken(rule) == said
