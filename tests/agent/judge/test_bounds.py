"""However long or odd a line is, it is judged soon, and asked about where it cannot be read."""

import time
from pathlib import Path

import pytest

from agent.judge import Setting, judge_line

SETTING = Setting(Path("/srv/project"), "auto")
BOMBS = {
    "too long": "a" * 70_000,
    "nonsense": "<>;&|()" * 9_000,
    "open expansions": "${" * 30_000,
    "open arithmetic": "((" * 30_000,
    "deep": "$(" * 200 + "ls" + ")" * 200,
    "quotes": "'" * 65_535,
    "many commands": "ls\n" * 15_000,
    "here-documents": "cat <<E\n" * 8_000,
}


@pytest.mark.budget
@pytest.mark.parametrize("line", BOMBS.values(), ids=BOMBS.keys())
def test_what_is_too_much_is_asked_about_soon(line: str) -> None:
    judge_line("ls", SETTING)
    took = []
    for _ in range(3):
        started = time.process_time()
        assert judge_line(line, SETTING).verdict == "ask"
        took.append(time.process_time() - started)
    assert min(took) < 0.5


def test_a_long_line_that_can_be_read_is_judged() -> None:
    assert judge_line("ls " + "abc " * 16_000, SETTING).verdict == "allow"
    assert judge_line("ls -l a\n" * 400, SETTING).verdict == "allow"
