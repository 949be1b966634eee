"""The instructions a repository gives to agents: `AGENTS.md` at its root and, nested, beside the code."""

import os
from collections.abc import Iterable
from pathlib import PurePosixPath

from tools.errors import ToolError
from tools.files import open_file
from tools.workspace import Workspace

NAME = "AGENTS.md"
LIMIT = 16_384
"""Characters of one instruction file that reach the model."""


def load(workspace: Workspace, path: str = NAME) -> str | None:
    """The text of an instruction file, bounded; None when there is none that can be read as text."""
    try:
        with open_file(workspace.root, path) as (descriptor, _):
            data = os.pread(descriptor, 4 * LIMIT, 0)  # enough for that many characters
    except (ToolError, OSError):
        return None
    text = data.decode("utf-8", errors="replace").strip()
    if len(text) > LIMIT:
        text = f"{text[:LIMIT]}\n[{path} is longer; the rest is left out]"
    return text or None


def nested(workspace: Workspace, paths: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Instruction files between the root (exclusive) and the given files that the model has not seen.

    Returns relative path → text, outermost first.
    """
    seen = set(known)
    found: dict[str, str] = {}
    for path in paths:
        folders = [folder for folder in reversed(PurePosixPath(path).parents) if folder != PurePosixPath(".")]
        for folder in folders:
            name = str(folder / NAME)
            if name in seen or folder.is_absolute() or ".." in folder.parts:
                continue
            seen.add(name)
            text = load(workspace, name)
            if text is not None:
                found[name] = text
    return found
