"""From what each checker prints to findings: pure functions of its output. Paths stay as they are printed."""

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from tools.diagnostics.finding import Finding, Severity

_TSC: Final = re.compile(r"^(.+?)\((\d+),(\d+)\): (error|warning|message) (TS\d+): (.*)$")
_COMPILER: Final = re.compile(r"^(?:vet: )?(.+?):(\d+)(?::(\d+))?: (?:(error|warning|note): )?(.*)$")


class Unreadable(ValueError):
    """The output is not what this checker prints when it works: it failed."""


def ruff(output: str) -> list[Finding]:
    """`ruff check --output-format json`. A finding without a code is a syntax error."""
    return [
        Finding(
            item["filename"],
            item["location"]["row"],
            item["location"]["column"],
            "error" if item.get("code") in (None, "invalid-syntax", "F821") else "warning",
            item.get("code") or "syntax",
            item["message"],
        )
        for item in _list(_json(output))
    ]


def pyright(output: str) -> list[Finding]:
    """`pyright --outputjson`; its positions count from 0."""
    data = _json(output)
    found = data.get("generalDiagnostics") if isinstance(data, dict) else None
    return [
        Finding(
            item["file"],
            item["range"]["start"]["line"] + 1,
            item["range"]["start"]["character"] + 1,
            _severity(item["severity"]),
            item.get("rule", ""),
            item["message"],
        )
        for item in _list(found)
        if "range" in item
    ]


def mypy(output: str) -> list[Finding]:
    """`mypy --output json`: one object a line; other lines are its summary."""
    found = []
    for line in output.splitlines():
        if line.startswith("{"):
            item = _json(line)
            found.append(
                Finding(
                    item["file"],
                    max(item["line"], 0),
                    max(item["column"], 0) + 1,
                    _severity(item["severity"]),
                    item.get("code") or "",
                    item["message"],
                )
            )
    return found


def tsc(output: str) -> list[Finding]:
    """`tsc --pretty false`. Lines that go on with a message are indented."""
    found: list[Finding] = []
    for line in output.splitlines():
        if (match := _TSC.match(line)) is not None:
            path, row, column, severity, code, message = match.groups()
            found.append(Finding(path, int(row), int(column), _severity(severity), code, message))
        elif line.startswith("error TS"):  # of the project, not of a file
            code, _, message = line.removeprefix("error ").partition(": ")
            found.append(Finding("tsconfig.json", 0, 0, "error", code, message))
    return found


def eslint(output: str) -> list[Finding]:
    """`eslint --format json`; severity 2 is an error."""
    return [
        Finding(
            file["filePath"],
            item.get("line") or 0,
            item.get("column") or 0,
            "error" if item.get("fatal") or item.get("severity") == 2 else "warning",
            item.get("ruleId") or "syntax",
            item["message"],
        )
        for file in _list(_json(output))
        for item in file["messages"]
    ]


def cargo(output: str) -> list[Finding]:
    """`cargo check --message-format json`: one object a line."""
    found = []
    for line in output.splitlines():
        item = _json(line) if line.startswith("{") else {}
        message = item.get("message")
        if item.get("reason") != "compiler-message" or not isinstance(message, dict):
            continue
        places = [span for span in message["spans"] if span["is_primary"]]
        if not places:  # "aborting due to 2 previous errors"
            continue
        code = (message.get("code") or {}).get("code", "")
        found.append(
            Finding(
                places[0]["file_name"],
                places[0]["line_start"],
                places[0]["column_start"],
                _severity(message["level"]),
                code,
                message["message"],
            )
        )
    return found


def compiler(output: str) -> list[Finding]:
    """`FILE:LINE:COLUMN: message`, as `go vet`, `gcc`, `rustc` and most others print it."""
    return list(_lines(output))


def shellcheck(output: str) -> list[Finding]:
    """`shellcheck --format json`."""
    return [
        Finding(
            item["file"],
            item["line"],
            item["column"],
            _severity(item["level"]),
            f"SC{item['code']}",
            item["message"],
        )
        for item in _list(_json(output))
    ]


def _lines(output: str) -> Iterator[Finding]:
    for line in output.splitlines():
        match = _COMPILER.match(line)
        if match is None or line.startswith("#"):
            continue
        path, row, column, severity, message = match.groups()
        yield Finding(path, int(row), int(column or 0), _severity(severity or "error"), "", message)


def _severity(word: str) -> Severity:
    word = word.lower()
    if word.startswith("error"):
        return "error"
    return "warning" if word.startswith("warn") else "info"


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"it printed no JSON ({error})") from error


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Unreadable("it printed other JSON than expected")
    return value
