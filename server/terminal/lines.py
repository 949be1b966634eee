"""Output of commands: JSON lines for programs, columns for people."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def emit(record: Mapping[str, Any]) -> None:
    """One JSON object, one line, at once."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def say(text: str = "") -> None:
    """A line for the person who typed the command."""
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """A line beside the output."""
    sys.stderr.write(f"etude: {text}\n")
    sys.stderr.flush()


def columns(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> None:
    """A table: columns as wide as their widest cell, the last one free."""
    table = [heads, *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(heads) - 1)]
    for row in table:
        say(
            "  ".join(
                [cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + [row[-1]]
            ).rstrip()
        )
