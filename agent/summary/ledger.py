"""What code remembers across summaries, whatever the model writes: a fold of the log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.events import Event
from tools.text import shortened, visible

WORDS_KEPT, FILES_KEPT, COMMANDS_KEPT = 100, 300, 60
"""The newest that are remembered; how many older ones there were is counted."""
WORDS_LENGTH = 20_000
"""Characters of a message of the user that is not the newest."""
COMMAND_LENGTH = 200
"""Characters."""
SHARES = {"words": 0.5, "todos": 0.2, "files": 0.15, "commands": 0.1, "jobs": 0.05}
"""How the room is divided; what a section leaves is given to the next."""

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
OPEN = ("pending", "in_progress")
"""States of a to-do that is still to be done."""


@dataclass(slots=True)
class File:
    """What became of one file: who changed it last, its content's hash (None: deleted), lines in and out."""

    by: str
    after: str | None
    added: int = 0
    removed: int = 0


@dataclass(slots=True)
class Ledger:
    """The user's words, the to-dos, changed files, commands with their exit codes, open jobs."""

    words: list[tuple[int, str]] = field(default_factory=list)
    """`(seq, text)` of prompts and of what was added to running turns."""
    words_gone: int = 0
    todos: list[dict[str, str]] = field(default_factory=list)
    files: dict[str, File] = field(default_factory=dict)
    """By path, the one changed last at the end."""
    files_gone: int = 0
    commands: list[tuple[str, str]] = field(default_factory=list)
    """`(how it ended, command)`."""
    commands_gone: int = 0
    jobs: dict[str, str] = field(default_factory=dict)
    """Background jobs that run, as far as the log knows: id → command."""
    summaries: int = 0
    running: dict[str, str] = field(default_factory=dict)
    """Commands without a result yet: call id → command."""

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        data = event.data
        match event.type:
            case "prompt" | "steered":
                self._say(event.seq, data["text"])
            case "todo":
                self.todos = data["items"]
            case "edit":
                self._change(data["path"], "you", data)
            case "user_edit":
                self._change(data["path"], "the user", data)
            case "restored":
                for path in data.get("changed", []):
                    self._note(path, File("the user, who took your change back", None))
            case "tool.call" if data["name"] == "shell":
                self.running[data["call_id"]] = str((data.get("arguments") or {}).get("command", ""))
            case "tool.result":
                self._ended(data)
            case "summary":
                self.summaries = data["number"]
            case _:
                pass

    def touched(self) -> set[str]:
        """Paths that are known to have changed in this session."""
        return set(self.files)

    def open_todos(self) -> list[str]:
        return [item["content"] for item in self.todos if item["status"] in OPEN]

    def _say(self, seq: int, text: str) -> None:
        if len(self.words) > 1:  # the first is the task, the last was the newest until now
            last, old = self.words[-1]
            self.words[-1] = (last, both_ends(old, WORDS_LENGTH))
        self.words.append((seq, text))
        if len(self.words) > WORDS_KEPT:
            del self.words[1]
            self.words_gone += 1

    def _change(self, path: str, by: str, data: dict[str, Any]) -> None:
        old = self.files.get(path) or File(by, None)
        after = data.get("after") or {}
        added, removed = old.added + data.get("added", 0), old.removed + data.get("removed", 0)
        self._note(path, File(by, after.get("hash"), added, removed))

    def _note(self, path: str, file: File) -> None:
        self.files.pop(path, None)
        self.files[path] = file
        if len(self.files) > FILES_KEPT:
            del self.files[next(iter(self.files))]
            self.files_gone += 1

    def _ended(self, result: dict[str, Any]) -> None:
        command, data = self.running.pop(result["call_id"], None), result.get("data", {})
        job = data.get("job")
        if job is not None:
            if data.get("running"):
                self.jobs.setdefault(str(job), command or "")
            else:
                self.jobs.pop(str(job), None)
        if command is None or job is not None:
            return
        code = data.get("exit_code")
        ended = (
            f"exit {code}" if code is not None else result.get("synthetic") or result.get("error") or "ended"
        )
        self.commands.append((ended, command))
        if len(self.commands) > COMMANDS_KEPT:
            del self.commands[0]
            self.commands_gone += 1

    def render(self, room: int, *, without: Iterable[int] = ()) -> str:
        """The ledger as text of about `room` characters; what is left out is said.

        `without` names messages of the user (by `seq`) that the conversation still holds.
        """
        skipped = set(without)
        left, parts = 0.0, list[str]()
        for name, share in SHARES.items():
            budget = int(room * share + left)
            part = self._section(name, budget, skipped)
            left = max(0.0, budget - len(part))
            if part:
                parts.append(part)
        parts.append(f"Summaries so far, with this one: {self.summaries + 1}")
        return "\n\n".join(parts)

    def _section(self, name: str, room: int, skipped: set[int]) -> str:
        if name == "words":
            said = [text for seq, text in self.words if seq not in skipped]
            return _words(said, self.words_gone, room)
        if name == "todos":
            return _todos(self.todos, room)
        if name == "files":
            lines = [_file(path, file) for path, file in self.files.items()]
            return _list("Files changed in this session:", lines, self.files_gone, room)
        if name == "commands":
            lines = [f"{end}: {shortened(' '.join(c.split()), COMMAND_LENGTH)}" for end, c in self.commands]
            return _list("Commands run:", lines, self.commands_gone, room)
        lines = [f"job {job}: {shortened(command, COMMAND_LENGTH)}" for job, command in self.jobs.items()]
        return _list("Background jobs that were running:", lines, 0, room)


def both_ends(text: str, room: int) -> str:
    """A text of at most about `room` characters: its beginning and its end, and how much is missing."""
    if len(text) <= room:
        return text
    half = max(0, room - 40) // 2
    end = text[len(text) - half :] if half else ""
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{end}"


def _words(said: Sequence[str], gone: int, room: int) -> str:
    """The newest whole where it fits, then the first (the task), then the others from the newest on."""
    if not said:
        return ""
    shown: dict[int, str] = {}
    for index in dict.fromkeys([len(said) - 1, 0, *range(len(said) - 2, 0, -1)]):
        least = 200 if index in (0, len(said) - 1) else 0
        text = both_ends(said[index], max(room, least))
        if not least and len(text) > room:
            break
        if not least and text != said[index]:
            break
        shown[index] = text
        room -= len(text) + 4
    missing = gone + len(said) - len(shown)
    lines = [f"- {shown[index]}" for index in sorted(shown)]
    if missing:
        lines.insert(1, f"[{missing} messages left out here]")
    return "\n".join(["What the user said, in their own words, the newest last:", *lines])


def _todos(items: Sequence[dict[str, str]], room: int) -> str:
    """Open ones are never left out, only cut; of the others, as many as fit."""
    if not items:
        return ""
    opened = [item for item in items if item["status"] in OPEN]
    width = max(40, room // max(1, len(opened)) - 6)
    lines = [f"{_MARKS.get(i['status'], '[ ]')} {shortened(i['content'], width)}" for i in opened]
    left, closed = room - sum(len(line) + 1 for line in lines), list[str]()
    rest = [item for item in items if item["status"] not in OPEN]
    for item in reversed(rest):
        line = f"{_MARKS.get(item['status'], '[-]')} {shortened(item['content'], 120)}"
        if (left := left - len(line) - 1) < 0:
            break
        closed.insert(0, line)
    if len(closed) < len(rest):
        closed.insert(0, f"[{len(rest) - len(closed)} that are done or given up are left out]")
    return "\n".join(["To-do list:", *closed, *lines])


def _file(path: str, file: File) -> str:
    state = f"now {file.after[:12]}" if file.after else "deleted"
    lines = f", +{file.added} −{file.removed}" if file.added or file.removed else ""
    taken = "" if file.by == "you" else f" (by {file.by})"
    return f"{visible(path, 200)}: {'changed' if 'back' in file.by else state}{lines}{taken}"


def _list(head: str, lines: Sequence[str], gone: int, room: int) -> str:
    """The newest lines that fit (the last ones), and how many are missing; the newest always."""
    if not lines:
        return ""
    shown: list[str] = []
    left = room - len(head)
    for line in reversed(lines):
        if (left := left - len(line) - 1) < 0 and shown:
            break
        shown.insert(0, line)
    missing = gone + len(lines) - len(shown)
    more = [f"[{missing} earlier ones left out]"] if missing else []
    return "\n".join([head, *more, *shown])
