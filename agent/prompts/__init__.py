"""The prompts, as text files beside this module."""

from functools import cache
from importlib.resources import files

from agent.events import Mode
from tools.registry import Profile


@cache
def text(name: str) -> str:
    """The prompt file `NAME.md`, without trailing white space."""
    return (files(__name__) / f"{name}.md").read_text(encoding="utf-8").strip()


def system(profile: Profile, mode: Mode, workspace: str, instructions: str | None) -> str:
    """The system message of a session: fixed until its mode, model or profile changes."""
    parts = [text(profile)]
    if profile == "full":
        parts += [text(f"mode_{mode}"), f"Workspace: {workspace}"]
    elif mode == "plan":
        parts.append("Only plan; change nothing.")
    if instructions:
        parts.append(f"Instructions of this repository (AGENTS.md):\n\n{instructions}")
    return "\n\n".join(parts)
