"""The two profiles: every tool at length, or all of them within five hundred tokens."""

from pathlib import Path

import orjson
import pytest

from agent.prompts import system
from tools.registry import COMPACT, OUTPUT_LIMITS, TOOLS, schemas
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace


def test_the_compact_profile_offers_a_part_of_the_tools_in_the_same_order() -> None:
    full, compact = (
        [tool["function"]["name"] for tool in schemas("full")],
        [tool["function"]["name"] for tool in schemas("compact")],
    )
    assert full == list(TOOLS)
    assert compact == [name for name in full if name in COMPACT] and len(compact) == len(COMPACT)


def test_schemas_are_plain_json_schema_objects() -> None:
    for tool in schemas("full"):
        text = orjson.dumps(tool).decode()
        assert "$ref" not in text and "anyOf" not in text and '"title"' not in text
        parameters = tool["function"]["parameters"]
        assert parameters["type"] == "object"
        assert parameters["additionalProperties"] is False
    assert "description" in schemas("full")[0]["function"]


@pytest.mark.parametrize("mode", ["plan", "ask", "auto", "full"])
def test_the_compact_prompt_fits_in_five_hundred_tokens(mode: str) -> None:
    """Counted by the rule of thumb of three characters a token, which is more than any tokenizer counts."""
    prompt = system("compact", mode, "/workspace", None)  # pyright: ignore[reportArgumentType]
    assert (len(prompt) + len(orjson.dumps(schemas("compact")))) / 3 <= 500


async def test_results_are_short_where_the_profile_says_so(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a line of text\n" * 5000)
    workspace = Workspace(tmp_path, SandboxPolicy(), output_limit=OUTPUT_LIMITS["compact"])
    try:
        for name, arguments in (
            ("read", {"path": "long.txt"}),
            ("grep", {"pattern": "line", "limit": 1000}),
            ("shell", {"command": "cat long.txt"}),
        ):
            tool = TOOLS[name]
            result = await tool.run(
                tool.parse(orjson.dumps(arguments).decode()), workspace, lambda text: None
            )
            assert 1000 < len(result.text) < 5000, name
    finally:
        await workspace.close()
