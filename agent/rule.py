"""A rule as the log keeps it: what a person allowed for good, in one line of text.

`edit`: all edits; `shell:` and the words that commands begin with; `mcp-server:` and which server may start;
any other is the name of a tool.
"""

from typing import Final

EDITS: Final = "edit"
COMMAND: Final = "shell:"
SERVER: Final = "mcp-server:"


def spoken(rule: str) -> str:
    """What a rule allows, for people."""
    if rule == EDITS:
        return "all edits"
    if rule.startswith(COMMAND):
        return f"`{rule.removeprefix(COMMAND)}`"
    if rule.startswith(SERVER):
        return f"starting the MCP server `{rule.removeprefix(SERVER).rpartition(':')[0]}`"
    return f"the tool `{rule}`"
