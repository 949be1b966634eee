"""What `chat` and `run` have in common: options, the workspace, JSON lines, exit codes."""

import argparse
import sys
from pathlib import Path
from typing import Any

from server import places
from server.failure import Usage
from server.terminal.conversation import Conversation, Ended, Item
from server.terminal.facts import Facts
from server.terminal.lines import emit

MODES = ("plan", "ask", "auto", "full")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", help="a [models.NAME] table, local[:PATH], openai:MODEL or recorded:SESSION"
    )
    parser.add_argument("--mode", choices=MODES, help="what needs approval (default: ask)")
    parser.add_argument(
        "--workspace", metavar="DIR", default=".", help="the folder to work in (default: this one)"
    )
    parser.add_argument("--db", metavar="URL", help="database of a private server")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on standard output")


def workspace_of(arguments: argparse.Namespace) -> Path:
    folder = places.from_caller(arguments.workspace).resolve()
    if not folder.is_dir():
        raise Usage(f"{folder} is not a folder; --workspace names the folder to work in")
    return folder


def text_of(message: str | None) -> str | None:
    """The one message of a call without a person: the argument, or all of a piped standard input."""
    if message is None and sys.stdin.isatty():
        return None
    text = sys.stdin.read() if message is None or message == "-" else message
    if not text.strip():
        raise Usage("the message is empty; give it as an argument or on standard input")
    return text


def server_flags(arguments: argparse.Namespace) -> list[str]:
    """The flags of a private server."""
    given = {"--model": arguments.model, "--mode": arguments.mode, "--db": arguments.db}
    return [part for flag, value in given.items() if value for part in (flag, value)]


def meta_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """`_meta.etude` of `session/new`."""
    wanted = {"model": arguments.model, "mode": arguments.mode}
    return {key: value for key, value in wanted.items() if value is not None}


def apply(arguments: argparse.Namespace, conversation: Conversation) -> None:
    """Make the session what the options ask for, where it is not so already."""
    if arguments.mode and conversation.mode != arguments.mode:
        conversation.set_mode(arguments.mode)
    if arguments.model and conversation.model != arguments.model:
        conversation.set_model(arguments.model)


def emit_item(item: Item) -> None:
    """One item as a JSON line: what the server sent, under the `type` of the item."""
    if item.kind == "quiet":
        return
    if item.kind == "event":
        emit({"type": "event", "event": item.params.get("type"), **_without_type(item)})
    else:
        emit({"type": item.kind, **item.params})


def _without_type(item: Item) -> dict[str, Any]:
    return {key: value for key, value in item.params.items() if key != "type"}


def result_of(ended: Ended, conversation: Conversation, facts: Facts, workspace: Path) -> dict[str, Any]:
    """The last line of `--json`."""
    return {
        "type": "result",
        "sessionId": conversation.session_id,
        "reason": ended.reason,
        "message": ended.message,
        "text": facts.text,
        "changed": facts.changed_in(workspace),
        "steps": ended.steps,
        "usage": dict(ended.usage or {}),
        "cost": ended.cost,
        "model": conversation.model,
        "mode": conversation.mode,
    }


def exit_code(ended: Ended) -> int:
    """0 the agent ended its turn, 130 the user ended it, 1 anything else."""
    if ended.reason == "end_turn":
        return 0
    return 130 if ended.reason == "interrupted" else 1
