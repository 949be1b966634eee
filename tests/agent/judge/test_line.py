"""The judge, line by line."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agent.judge import Setting, judge_line

LINES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "lines.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("judged")
    outside = tmp_path_factory.mktemp("outside")
    for name in ("sub/deep", ".git"):
        (root / name).mkdir(parents=True)
    (root / "f").touch()
    os.symlink(outside, root / "out")
    return root


def verdicts(root: Path, line: str) -> tuple[str, ...]:
    return tuple(judge_line(line, Setting(root, mode)).verdict for mode in ("plan", "ask", "auto", "full"))


@pytest.mark.case("agent-23")
@pytest.mark.parametrize("line", LINES["reads"])
def test_what_only_reads_runs(root: Path, line: str) -> None:
    assert verdicts(root, line) == ("allow", "allow", "allow", "allow")


@pytest.mark.case("agent-23")
@pytest.mark.parametrize("line", LINES["acts"])
def test_what_changes_something_is_asked(root: Path, line: str) -> None:
    assert verdicts(root, line) == ("deny", "ask", "allow", "allow")


@pytest.mark.case("agent-23")
@pytest.mark.parametrize("line", LINES["asks"])
def test_what_is_dangerous_or_unclear_is_asked_in_auto_too(root: Path, line: str) -> None:
    assert verdicts(root, line) == ("deny", "ask", "ask", "allow")


@pytest.mark.case("agent-23")
@pytest.mark.parametrize(("line", "expected"), LINES["rules"].items())
def test_always_makes_a_rule_for_each_part_that_may_have_one(
    root: Path, line: str, expected: list[str]
) -> None:
    asked = judge_line(line, Setting(root, "ask"))
    assert asked.verdict == "ask"
    assert [" ".join(rule) for rule in asked.rules] == expected
    again = judge_line(line, Setting(root, "ask", allowed=asked.rules))
    assert (again.verdict == "allow") == (asked.whole and bool(asked.rules))


@pytest.mark.parametrize(
    ("rule", "covered", "line"),
    [
        ("eslint", True, "eslint --fix f"),
        ("eslint", False, "eslint -c f ."),
        ("npx eslint", False, "npx eslint -c f ."),
        ("mocha", False, "mocha -r ./f"),
        ("pytest", True, "pytest -q -x sub"),
        ("pytest", False, "pytest -p sub.plugin"),
        ("pytest", False, "pytest -c f"),
        ("jest", False, "jest -c f"),
    ],
)
def test_a_rule_covers_no_flag_that_names_code(root: Path, rule: str, covered: bool, line: str) -> None:
    allowed = (tuple(rule.split()),)
    assert (judge_line(line, Setting(root, "ask", allowed=allowed)).verdict == "allow") == covered


def test_there_are_enough_of_them() -> None:
    assert len({*LINES["reads"], *LINES["acts"], *LINES["asks"], *LINES["rules"]}) > 500
