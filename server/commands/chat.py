"""`etude chat`: the conversation in a terminal."""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server import places
from server.commands import session_options
from server.commands.session_source import Served, find
from server.commands.taking_back import take_back
from server.failure import CommandFailed
from server.terminal.acp_client import AcpClient
from server.terminal.conversation import Conversation, Ended, Item
from server.terminal.facts import Facts
from server.terminal.host import Host, a_server
from server.terminal.lines import emit
from server.terminal.play import play
from server.terminal.screen import Screen
from server.terminal.style import clean

HELP = """\
/mode plan|ask|auto|full   what needs your approval
/model NAME                another model for this session
/sessions                  sessions of this workspace
/undo [TURN] [PATH]        show what the agent changed (in the last turn), and take it back
/help                      this text
/quit                      leave (Ctrl-D does too)
A line that ends with \\ goes on in the next. Ctrl-C stops the turn; twice at the prompt, it leaves."""

_SESSION = re.compile(r"0[0-9A-HJKMNP-TV-Z]{0,25}", re.IGNORECASE)
"""The id of a session, or how one begins: ids are ULIDs, which begin with 0 for a long time to come."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("message", nargs="?", help="say this and leave after the answer")
    parser.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="ID",
        help="go on with a session (the last one of this workspace)",
    )
    session_options.add(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.resume and arguments.message is None and not _SESSION.fullmatch(arguments.resume):
        arguments.resume, arguments.message = "", arguments.resume  # `--resume "and now?"`
    text = session_options.text_of(arguments.message)
    workspace = session_options.workspace_of(arguments)
    with a_server(workspace, session_options.server_flags(arguments)) as host:
        client = AcpClient(host, forms=_can_ask(arguments))
        client.connect()
        try:
            return _Chat(arguments, host, Conversation(client), workspace).run(text)
        finally:
            client.close()


class _Chat:
    def __init__(
        self, arguments: argparse.Namespace, host: Host, conversation: Conversation, workspace: Path
    ) -> None:
        self.arguments, self.workspace = arguments, workspace
        self.sessions = Served(host)
        self.conversation = conversation
        self.screen, self.facts = Screen(sys.stdout), Facts()
        self.json = bool(arguments.json)
        self.can_ask = _can_ask(arguments)

    def run(self, text: str | None) -> int:
        self._begin()
        if text is not None:
            ended = self._turn(text)
            if self.json:
                emit(session_options.result_of(ended, self.conversation, self.facts, self.workspace))
            else:
                self.screen.finish(ended, self.facts)
            return session_options.exit_code(ended)
        self._greet()
        with _history():
            return self._talk()

    def _begin(self) -> None:
        conversation, resume = self.conversation, self.arguments.resume
        if resume is None:
            conversation.open(self.workspace, session_options.meta_of(self.arguments))
        else:
            past = conversation.resume(
                _session_to_resume(self.sessions, resume, self.workspace), self.workspace
            )
            self.screen.own_prompts = True
            for item in past:
                self._show(item)
            self.screen.own_prompts = False
            self.facts = Facts()
        session_options.apply(self.arguments, conversation)
        if self.json:
            emit({"type": "session", "sessionId": conversation.session_id, "workspace": str(self.workspace)})

    def _greet(self) -> None:
        style = self.screen.style
        model, mode = self.conversation.model or "?", self.conversation.mode or "?"
        self.screen.line(
            style.bold("etude") + style.dim(f"  {self.workspace}  model {model}  mode {mode}  /help")
        )

    def _talk(self) -> int:
        interrupted = 0.0
        while True:
            try:
                text = _read_message()
            except EOFError:
                self.screen.line()
                return 0
            except KeyboardInterrupt:
                if time.monotonic() - interrupted < 2:
                    raise
                interrupted = time.monotonic()
                self.screen.line()
                self.screen.notice("press Ctrl-C again to leave")
                continue
            if text.startswith("/"):
                if self._command(text):
                    return 0
            elif text.strip():
                self.screen.finish(self._turn(text), self.facts)

    def _command(self, text: str) -> bool:
        """Do a slash command. True = leave."""
        name, _, value = text[1:].strip().partition(" ")
        conversation, screen = self.conversation, self.screen
        try:
            if name in ("quit", "exit", "q"):
                return True
            if name == "mode" and value.strip() in session_options.MODES:
                conversation.set_mode(value.strip())
                screen.notice(f"mode: {conversation.mode}")
            elif name == "model" and value:
                conversation.set_model(value.strip())
                screen.notice(f"model: {conversation.model}")
            elif name == "mode":
                unknown = f"there is no mode {value.strip()}; " if value else ""
                screen.line(f"{unknown}mode {conversation.mode}; plan, ask, auto and full can be chosen")
            elif name == "model":
                screen.line(f"model {conversation.model}; known: {', '.join(conversation.models)}")
            elif name == "undo":
                take_back(conversation, screen, value)
            elif name == "sessions":
                for row in self.sessions.sessions(workspace=self.workspace, query=None, limit=20):
                    here = "*" if row["id"] == conversation.session_id else " "
                    screen.line(f"{here} {row['id']}  {clean(str(row.get('title') or 'untitled'))}")
            else:
                if name != "help":
                    screen.notice(f"there is no command /{name}; a message cannot begin with a slash")
                screen.line(HELP)
        except CommandFailed as failure:
            screen.notice(str(failure))
        return False

    def _turn(self, text: str) -> Ended:
        self.facts = Facts()
        return play(self.conversation, text, show=self._show, approve=self._approve, answer=self._answer)

    def _show(self, item: Item) -> None:
        self.facts.take(item)
        if self.json:
            session_options.emit_item(item)
        else:
            self.screen.show(item)

    def _approve(self, item: Item) -> str | None:
        """Put the question; the id of the chosen option."""
        options = item.params.get("options") or []
        question = ""
        if self.json:
            session_options.emit_item(item)
        else:
            question = self.screen.question(item.params)
        kind = "reject_once"
        if self.can_ask:
            from server.terminal.keys import choose

            kinds = {str(option.get("kind")) for option in options}
            chosen = choose(
                lambda: self.screen.ask(question), lambda: self.conversation.overtaken(item), kinds
            )
            if chosen is None:
                return None
            kind = chosen
            self.screen.answer({"allow_once": "yes", "allow_always": "always", "reject_once": "no"}[kind])
        elif not self.json:
            self.screen.notice(
                "refused: nobody can be asked here; choose --mode auto or full, or use a terminal"
            )
        return next((str(option["optionId"]) for option in options if option.get("kind") == kind), None)

    def _answer(self, item: Item) -> dict[str, str] | None:
        """Put a question of the agent's; what was said, None for nothing."""
        from server.terminal.keys import line

        fields = (item.params.get("requestedSchema") or {}).get("properties") or {}
        options = [str(option) for option in (fields.get("choice") or {}).get("enum") or []]
        words = self.screen.form(str(item.params.get("message", "")), options)
        said = line(lambda: self.screen.ask(words), lambda: self.conversation.overtaken(item))
        if not said:
            return None
        if said.isdigit() and 1 <= int(said) <= len(options):
            return {"choice": options[int(said) - 1]}
        return {"answer": said}


def _can_ask(arguments: argparse.Namespace) -> bool:
    """Whether a person sits at a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json


def _session_to_resume(sessions: Served, wanted: str, workspace: Path) -> str:
    """The session that `wanted` names; empty = the last one of the workspace."""
    if wanted:
        return find(sessions, wanted)
    rows = sessions.sessions(workspace=workspace, query=None, limit=1)
    if not rows:
        raise CommandFailed(f"there is no session in {workspace} to resume; `etude chat` begins one")
    return str(rows[0]["id"])


def _read_message() -> str:
    """What the user typed; lines that end with a backslash are joined."""
    lines = [input("› ")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input("… "))
    return "\n".join(lines)


@contextmanager
def _history() -> Iterator[None]:
    """Line editing with a history that outlives the chat."""
    try:
        import readline
    except ImportError:  # a Python without it: plain input
        yield
        return
    file = places.data_dir() / "chat-history"
    if file.exists():
        readline.read_history_file(file)
    readline.set_history_length(1000)
    try:
        yield
    finally:
        descriptor = os.open(file, os.O_CREAT | os.O_WRONLY, 0o600)
        os.close(descriptor)
        readline.write_history_file(file)
