"""What ignore files above a folder say of what is in it, as rules that hold from that folder on.

ripgrep that is started on a folder takes an anchored rule of a folder above (`/src/gen/`) for a rule at any
depth. So it is told to leave those files alone, and gets their rules translated.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.errors import ToolError
from tools.files import read_bytes, stat
from tools.ignores import FILES, MAX_BYTES

_WILD: Final = re.compile(r"[\\*?\[]")


def ignored_above(root: Path, folder: str) -> bytes | None:
    """The text of an ignore file for ripgrep that runs in `folder` (canonical, below the workspace); None
    where no repository in the workspace holds the folder: ripgrep then decides.

    Rules that ignore the folder itself are left out: it was asked for.
    """
    parts = folder.split("/")
    above = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
    top = max((at for at, one in enumerate(above) if _exists(root, _in(one, ".git"))), default=None)
    if top is None:
        return None
    lines: list[str] = []
    if top < len(parts):
        lines += _translated(root, _in(above[top], ".git/info/exclude"), parts[top:])
    for name in FILES:
        # Git's own rules end where its repository does.
        for at in range(top if name == ".gitignore" else 0, len(parts)):
            lines += _translated(root, _in(above[at], name), parts[at:])
    return os.fsencode("".join(line + "\n" for line in lines))


def _in(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _exists(root: Path, path: str) -> bool:
    try:
        return stat(root, path) is not None
    except ToolError:
        return False


def _translated(root: Path, path: str, below: list[str]) -> Iterator[str]:
    """The rules of one ignore file for the folder that lies `below` it."""
    try:
        data, _ = read_bytes(root, path, MAX_BYTES)
    except ToolError:
        return  # absent, no regular file, or leading outside: git would not read it either
    for line in os.fsdecode(data).splitlines():
        rule = line if line.endswith("\\ ") else line.rstrip()
        if not rule or rule.startswith("#"):
            continue
        negated = rule.startswith("!")
        rule = rule[negated:]
        mark = "/" * rule.endswith("/")
        rule = rule.rstrip("/")
        parts = rule.removeprefix("/").split("/")
        if "/" not in rule:
            parts = ["**", *parts]
        for rest in _remaining(parts, below):
            yield f"{'!' * negated}/{'/'.join(rest)}{mark}"


def _remaining(rule: list[str], below: list[str]) -> Iterator[list[str]]:
    """What is left of a rule for paths in a folder, whichever way its beginning matches that folder."""
    states = _closed(rule, {0})
    for name in below:
        following: set[int] = set()
        for at in states:
            if at < len(rule) and rule[at] == "**":
                following.add(at)
            elif at < len(rule) and _matches(rule[at], name):
                following.add(at + 1)
        states = _closed(rule, following)
    for at in sorted(states):
        if at < len(rule) and rule[at:] != ["**"]:
            yield rule[at:]


def _closed(rule: list[str], states: set[int]) -> set[int]:
    """`**` may stand for no folder, but at the end of a rule for at least one name."""
    closed = set(states)
    for at in sorted(states):
        while at < len(rule) - 1 and rule[at] == "**":
            at += 1
            closed.add(at)
    return closed


def _matches(part: str, name: str) -> bool:
    if not _WILD.search(part):
        return part == name
    from pathspec import GitIgnoreSpec  # takes a while to load, which a server's start need not wait for

    try:
        return GitIgnoreSpec.from_lines([f"/{part}"]).match_file(name)
    except (ValueError, re.error):
        return False
