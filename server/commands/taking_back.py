"""`/undo` in a chat: what the agent changed in a turn is shown, and taken back if the user says so."""

from collections.abc import Mapping
from typing import Any

from server.terminal.conversation import Conversation
from server.terminal.diff import drawn
from server.terminal.screen import Screen
from server.terminal.style import clean


def take_back(conversation: Conversation, screen: Screen, words: str) -> None:
    """`words`: `[TURN] [PATH]`, the last turn and all its files where they are not named.

    Raises `CommandFailed` where the server refuses: an unknown turn or file, or one that still runs.
    """
    number, _, path = words.strip().partition(" ")
    if not (number.isascii() and number.isdecimal()):
        number, path = "", words
    row = conversation.client.host.get(f"/api/sessions/{conversation.session_id}")
    target: dict[str, Any] = {"turn": int(number or row.get("turn") or 0)}
    if not target["turn"]:
        screen.notice("there is nothing to take back yet")
        return
    if path.strip():
        target["path"] = path.strip()
    answer = _feedback(conversation, target, preview=True)
    if not answer["files"]:
        screen.notice(f"nothing of turn {target['turn']} is left to take back")
        return
    for file in answer["files"]:
        for line in drawn(str(file["path"]), str(file["diff"]), screen.style):
            screen.line("  " + line)
        _conflicts(screen, file)
    if not _agreed(screen):
        screen.notice("nothing was taken back")
        return
    done = _feedback(conversation, target, preview=False)
    for file in done["kept"]:
        screen.notice(f"{file.get('path')} was left as it is: {file.get('why')}")
    changed = len(done["files"]) - len(done["kept"])
    screen.notice(f"taken back in {changed} {'file' if changed == 1 else 'files'}")


def _feedback(conversation: Conversation, target: Mapping[str, Any], *, preview: bool) -> Mapping[str, Any]:
    wish = {"kind": "undo", "target": target, "preview": preview}
    return conversation.client.call("_etude/feedback", {"sessionId": conversation.session_id, **wish})


def _conflicts(screen: Screen, file: Mapping[str, Any]) -> None:
    if count := len(file["conflicts"]):
        places = "place was" if count == 1 else "places were"
        screen.notice(f"{clean(str(file['path']))}: {count} {places} changed since; they stay as they are")


def _agreed(screen: Screen) -> bool:
    screen.out.flush()
    try:
        return input("? Take this back? [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        screen.line()
        return False
