"""Draws a conversation in a terminal: streamed text, tool cards, diffs, questions, notices."""

import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from server.terminal.acp_client import NAME
from server.terminal.conversation import Ended, Item
from server.terminal.diff import unified
from server.terminal.facts import Facts, text_of
from server.terminal.markdown import MarkdownStream
from server.terminal.style import Style, clean, one_line

QUIET_S = 2
"""Seconds without news after which the screen says that it waits."""
RESULT_LINES = 6
"""Lines of a tool's result that a card shows."""
LIVE_LINES = 40
"""Lines of a command's output that are shown as they come; of what follows, the end."""

ENDS = {
    "cancelled": "stopped",
    "max_steps": "stopped at the step limit; send a message to go on",
    "max_turn_requests": "stopped at the step limit; send a message to go on",
    "overlong": "a limit of the model was reached",
    "timeout": "the time limit was reached",
    "max_cost": "the cost limit was reached",
    "malformed": "stopped, because the turn got nowhere",
    "model_error": "no answer from the model",
    "env_error": "the workspace could not be used",
    "interrupted": "interrupted",
}
QUESTIONS = {"edit": "Make this change?", "execute": "Run this command?"}
"""What is asked about a kind of call."""


@dataclass(slots=True)
class _Card:
    title: str
    kind: str
    diffs: list[tuple[Any, Any, Any]] = field(default_factory=list)
    """What was shown of its changes: path, old and new text."""
    live: int = 0
    """Lines of its output that were shown as they came."""
    part: str = ""
    """The beginning of a line whose end has not come yet."""
    planned: bool = False
    """Whether its list was shown, so that its text would only repeat it."""


class Screen:
    """Everything goes to `out`."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.style = out, Style.of(out)
        self.width = shutil.get_terminal_size().columns
        self.own_prompts = False
        """Whether messages of users are drawn (for a replay, or for other clients' prompts)."""
        self._stream = MarkdownStream(self._write, self.style)
        self._open = ""
        """`text` or `thought` while such a message is being written, else empty."""
        self._message = ""
        self._cards: dict[str, _Card] = {}
        self._under: _Card | None = None
        """The card that the last line belongs to."""
        self._column = 0
        self._quiet_since: float | None = None
        self._ticking = False

    def show(self, item: Item) -> None:
        if item.kind == "quiet":
            self._tick()
            return
        self._quiet_since = None
        if item.kind == "update":
            self._update(item.params.get("update") or {})
        elif item.kind == "event":
            self._event(item.params.get("type"), item.params.get("data") or {})
        elif item.kind == "notice":
            self.notice(str(item.params.get("text", "")))
        elif item.kind == "resolved" and item.params.get("by") != NAME:
            self.notice(f"{item.params.get('outcome')} by {item.params.get('by') or 'another client'}")
        self.out.flush()

    def notice(self, text: str) -> None:
        lines = clean(text).splitlines() or [""]
        if self.out.isatty():
            lines = [part for line in lines for part in textwrap.wrap(line, max(20, self.width - 3)) or [""]]
        self.line(self.style.yellow("! ") + "\n  ".join(lines))
        self._under = None

    def line(self, text: str = "") -> None:
        """A line of its own."""
        self._close()
        self._write(text + "\n")
        self.out.flush()

    def question(self, params: Mapping[str, Any]) -> str:
        """Show what a permission is asked for, and why; the words that ask, for `ask`."""
        call = params.get("toolCall") or {}
        id = str(call.get("toolCallId"))
        kind, title = str(call.get("kind") or "other"), str(call.get("title") or "a tool call")
        card = self._cards.setdefault(id, _Card(title, kind))
        self._head(card)
        raw = call.get("rawInput")
        command = clean(str(raw["command"])) if isinstance(raw, dict) and raw.get("command") else ""
        if command and command != one_line(card.title, self.width - 4):
            for line in command.splitlines():
                self.line(f"  $ {line}")
        self._diffs(card, call)
        if reason := ((params.get("_meta") or {}).get("etude") or {}).get("reason"):
            self.line(self.style.dim(f"  {clean(str(reason))}"))
        self._under = card
        words = QUESTIONS.get(kind, "Allow this?")
        names = [str(item.get("name")) for item in params.get("options") or [] if _is_always(item)]
        always = f"[a]  {one_line(names[0], 100)}  " if names else ""
        keys = self.style.dim(f"  [y]es  {always}[n]o  ")
        return self.style.yellow("? ") + self.style.bold(words) + keys

    def form(self, message: str, options: Sequence[str]) -> str:
        """Show what is asked, with the answers to choose from; the words that ask, for `ask`."""
        self.line()
        self.line(self.style.yellow("? ") + self.style.bold(clean(message)))
        for number, option in enumerate(options, 1):
            self.line(f"  {number}  {clean(option)}")
        return self.style.dim("  a number, or your own words: " if options else "  your answer: ")

    def ask(self, text: str) -> None:
        """A question whose answer stands on the same line."""
        self._close()
        self._write(text)

    def answer(self, text: str) -> None:
        self._write(text + "\n")

    def finish(self, ended: Ended, facts: Facts) -> None:
        """Close a turn with one line of facts."""
        self._quiet_since = None
        self._erase_tick()
        self._close()
        why = ENDS.get(ended.reason)
        if ended.reason == "error":
            self.line(self.style.red("✗ ") + clean(ended.message))
        elif why:
            self.notice(f"{why}{': ' + ended.message if ended.message else ''}")
        if known := facts.summary(ended):
            self.line(self.style.dim(known))

    # ---- session/update

    def _update(self, update: Mapping[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            self._chunk("text" if kind == "agent_message_chunk" else "thought", update)
        elif kind == "user_message_chunk" and self.own_prompts:
            self.line()
            self.line(self.style.cyan("› ") + self.style.bold(clean(text_of(update.get("content")))))
        elif kind == "tool_call":
            self._call(update)
        elif kind == "tool_call_update":
            self._call_update(update)
        elif kind == "plan":
            self._plan(update.get("entries") or [])
        elif kind == "compaction_update":
            facts = (update.get("_meta") or {}).get("etude") or {}
            self.notice(str(facts.get("title") or "earlier messages were summarised"))
        elif kind == "current_mode_update":
            self.notice(f"mode: {update.get('currentModeId')}")

    def _chunk(self, kind: str, update: Mapping[str, Any]) -> None:
        text = text_of(update.get("content"))
        message = str(update.get("messageId") or "")
        if self._open != kind or message != self._message:
            self._close()
            if self._under is not None and kind == "text":
                self.line()
            self._open, self._message, self._under = kind, message, None
        if kind == "text":
            self._stream.feed(text)
        else:
            self._write(self.style.dim(clean(text)))

    def _call(self, update: Mapping[str, Any]) -> None:
        card = _Card(str(update.get("title") or "tool"), str(update.get("kind") or "other"))
        self._cards[str(update.get("toolCallId"))] = card
        if self._open == "text":
            self.line()
        self._head(card)

    def _head(self, card: _Card) -> None:
        """The title of a card, unless the last line is the card's own."""
        if self._under is not card:
            self.line(self.style.cyan("● ") + self.style.bold(one_line(card.title, self.width - 4)))
            self._under = card

    def _call_update(self, update: Mapping[str, Any]) -> None:
        card = self._cards.setdefault(str(update.get("toolCallId")), _Card("tool", "other"))
        self._diffs(card, update)
        status = update.get("status")
        texts = [
            text_of(item.get("content"))
            for item in update.get("content") or []
            if item.get("type") == "content"
        ]
        if status not in ("completed", "failed"):
            if card.kind == "execute" and self.out.isatty():
                self._live(card, "".join(texts))
        else:
            raw = update.get("rawOutput") or {}
            # A job that was ended on purpose has a status too, and that is no failure.
            failed = status == "failed" or (raw.get("exit_code") not in (None, 0) and "job" not in raw)
            self._head(card)
            self._result(card, "\n".join(texts), failed=failed, output="exit_code" in raw)
            self._cards.pop(str(update.get("toolCallId")), None)

    def _diffs(self, card: _Card, call: Mapping[str, Any]) -> None:
        """The changes of a call; each once, though it is told of again when it was made.

        A move changes no text: its title says it all.
        """
        if card.kind == "move":
            return
        for item in call.get("content") or []:
            change = (item.get("path"), item.get("oldText"), item.get("newText"))
            if item.get("type") == "diff" and change not in card.diffs:
                card.diffs.append(change)
                self._head(card)
                self.diff(item)

    def diff(self, item: Mapping[str, Any]) -> None:
        """A `diff` content item."""
        deleted = bool(((item.get("_meta") or {}).get("etude") or {}).get("deleted"))
        new = None if deleted else item.get("newText")
        for line in unified(str(item.get("path", "")), item.get("oldText"), new, self.style):
            self.line("  " + line)

    def _live(self, card: _Card, text: str) -> None:
        """Whole lines of a command's output, as they come."""
        *lines, card.part = (card.part + text).split("\n")
        for line in lines:
            card.live += 1
            if card.live <= LIVE_LINES:
                self._head(card)
                self.line(self.style.dim(f"    {one_line(line, self.width - 6)}"))

    def _result(self, card: _Card, text: str, *, failed: bool, output: bool) -> None:
        """A few lines: the last ones of a command's output, the first ones of anything else."""
        mark = self.style.red("  ✗ ") if failed else self.style.dim("  ✓ ")
        lines = [line for line in clean(text).splitlines() if line.strip()]
        if card.planned and not failed:
            lines = []
        if 0 < card.live <= LIVE_LINES:  # it was seen; what remains is how it ended, and what is said of it
            ends = [number for number, line in enumerate(lines) if line.startswith("[exit ")]
            lines = lines[ends[-1] :] if ends else []
        if not lines:
            self.line(mark + self.style.dim("failed" if failed else "done"))
            return
        shown = lines[-RESULT_LINES:] if output else lines[:RESULT_LINES]
        for number, line in enumerate(shown):
            short = line if len(line) <= self.width - 6 else line[: self.width - 7] + "…"
            self.line((mark if number == 0 else "    ") + self.style.dim(short))
        if len(lines) > RESULT_LINES:
            where = "above" if output else "below"
            self.line(self.style.dim(f"    … {len(lines) - RESULT_LINES} more lines {where}"))

    def _plan(self, entries: list[Mapping[str, Any]]) -> None:
        if self._under is not None:
            self._under.planned = True
        signs = {"completed": self.style.green("✓"), "in_progress": self.style.yellow("▸")}
        for entry in entries:
            sign = signs.get(str(entry.get("status")), "·")
            self.line(f"  {sign} {one_line(str(entry.get('content', '')), self.width - 6)}")

    # ---- events that ACP has no form for

    def _event(self, type: Any, data: Mapping[str, Any]) -> None:
        if type == "error" and not data.get("call_id"):  # what is wrong with a call stands on its card
            again = f" Trying again ({data['retry']})." if data.get("retry") else ""
            self.notice(f"{data.get('message', 'something went wrong')}{again}")

    # ---- writing

    def _tick(self) -> None:
        """Say that nothing has happened for a while, on a line that disappears."""
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        waited = int(now - self._quiet_since)
        if waited >= QUIET_S and self.style.enabled and not self._column:
            self.out.write("\r\x1b[K" + self.style.dim(f"… waiting, {waited} s (Ctrl-C stops)"))
            self.out.flush()
            self._ticking = True

    def _erase_tick(self) -> None:
        if self._ticking:
            self.out.write("\r\x1b[K")
            self._ticking = False

    def _close(self) -> None:
        if self._open == "text":
            self._stream.finish()
        self._open = ""
        if self._column:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._erase_tick()
            self.out.write(text)
            self.out.flush()
            self._column = 0 if text.endswith("\n") else self._column + len(text)


def _is_always(option: Mapping[str, Any]) -> bool:
    return option.get("kind") == "allow_always"
