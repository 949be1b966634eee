"""Every case of `docs/cases.md` has a test or an owner, and every marked test names a case."""

import ast
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cases.md"
COUNTS = {"agent": 30, "edit": 32, "trainer": 24, "bench": 20}
ROOMS = {"tools", "agent", "server", "trainer", "extension", "migrations"}


def rows() -> dict[str, str]:
    """Case → owner."""
    found = re.findall(
        r"^\| ([a-z]+-[a-z0-9-]+) \| [^|]+ \| ([^|]+) \|$", PAGE.read_text(), flags=re.MULTILINE
    )
    assert len(found) == len(dict(found)), "a case is listed twice"
    return dict(found)


def marked() -> dict[str, set[str]]:
    """Case → files with a test that is marked with it."""
    cases: dict[str, set[str]] = {}
    for file in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case":
                for argument in node.args:
                    if isinstance(argument, ast.Constant):
                        cases.setdefault(str(argument.value), set()).add(str(file.relative_to(ROOT)))
    for file in (ROOT / "tests").rglob("edits.json"):  # scenarios, which name their own cases
        for case in json.loads(file.read_text(encoding="utf-8"))["cases"]:
            cases.setdefault(case, set()).add(str(file.relative_to(ROOT)))
    return cases


def test_the_page_lists_every_case() -> None:
    counts: dict[str, int] = {}
    for case in rows():
        counts[case.split("-")[0]] = counts.get(case.split("-")[0], 0) + 1
    assert counts == COUNTS


def test_each_case_has_a_test_or_an_owner() -> None:
    tests = marked()
    without = [case for case, owner in rows().items() if owner == "test" and case not in tests]
    assert without == []
    homeless = {
        case: owner for case, owner in rows().items() if owner != "test" and owner.split("/")[0] not in ROOMS
    }
    assert homeless == {}


def test_each_mark_names_a_case() -> None:
    known = rows()
    assert {case: files for case, files in marked().items() if case not in known} == {}
