"""`etude run`: one task, no person to ask."""

import argparse
import sys

from server.commands import session_options
from server.failure import Usage
from server.terminal.acp_client import AcpClient
from server.terminal.conversation import Conversation, Item
from server.terminal.facts import Facts
from server.terminal.host import a_server
from server.terminal.lines import emit, say
from server.terminal.play import Limits, play
from server.terminal.screen import Screen

NO_PRICE = (
    "what this model costs is not known, so --max-cost cannot stop it: "
    "give its [models.NAME] table a price, or use --max-steps"
)

MORE = "--mode auto lets the agent edit and run sandboxed commands, approvals.allow single commands"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", help="what to do (default: read it from standard input)")
    parser.add_argument("--max-steps", type=_steps, metavar="N", help="stop after N model calls")
    parser.add_argument("--max-cost", type=_amount, metavar="USD", help="stop once more was spent")
    parser.add_argument("--timeout", type=_amount, metavar="SECONDS", help="stop after so long")
    session_options.add(parser)
    parser.epilog = (
        "What would need a person's approval is refused; --mode auto lets the agent edit and run sandboxed "
        "commands. The answer goes to standard output, progress to standard error. Exit: 0 the agent ended "
        "its turn, 1 it failed or met a limit, 130 interrupted."
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    task = session_options.text_of(arguments.task)
    if task is None:
        raise Usage('no task; give it as an argument or on standard input: etude run "…"')
    workspace = session_options.workspace_of(arguments)
    with a_server(workspace, session_options.server_flags(arguments)) as host:
        client = AcpClient(host)
        client.connect()
        conversation, facts, screen = Conversation(client), Facts(), Screen(sys.stderr)
        try:
            conversation.open(workspace, session_options.meta_of(arguments))
            session_options.apply(arguments, conversation)
            if arguments.json:
                emit({"type": "session", "sessionId": conversation.session_id, "workspace": str(workspace)})

            priced = arguments.max_cost is None

            def show(item: Item) -> None:
                nonlocal priced
                facts.take(item)
                if not priced and facts.used and facts.cost is None:
                    priced = True
                    screen.notice(NO_PRICE)
                if arguments.json:
                    session_options.emit_item(item)
                else:
                    screen.show(item)

            refused = 0

            def refuse(item: Item) -> str | None:
                nonlocal refused
                refused += 1
                show(item)
                if not arguments.json:
                    title = (item.params.get("toolCall") or {}).get("title")
                    screen.notice(f"refused, nobody is here to approve it: {title}")
                options = item.params.get("options") or []
                return next((str(o["optionId"]) for o in options if o.get("kind") == "reject_once"), None)

            limits = Limits(arguments.max_steps, arguments.max_cost, arguments.timeout)
            ended = play(conversation, task, show=show, approve=refuse, limits=limits)
        finally:
            client.close()
    if arguments.json:
        emit(session_options.result_of(ended, conversation, facts, workspace))
    else:
        screen.finish(ended, facts)
        if refused:
            calls = "1 call was" if refused == 1 else f"{refused} calls were"
            screen.notice(f"{calls} refused in mode {conversation.mode}; {MORE}")
        for path in facts.changed_in(workspace):
            screen.line(screen.style.dim(f"changed {path}"))
        if ended.reason != "end_turn":
            screen.line(screen.style.dim(f"`etude chat --resume {conversation.session_id}` goes on"))
        if facts.text.strip() and not (sys.stdout.isatty() and sys.stderr.isatty()):  # else it was just shown
            say(facts.text.strip())
    return session_options.exit_code(ended)


def _steps(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
