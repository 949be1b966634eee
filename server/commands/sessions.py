"""`etude sessions`: list, show, delete."""

import argparse
from collections.abc import Callable
from datetime import datetime
from typing import Any

from server import places
from server.commands.session_source import Row, SessionSource, find, source
from server.terminal.lines import columns, emit, say
from server.terminal.style import clean, one_line

RESULT_LINES = 10


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list sessions, the latest first")
    listing.add_argument("workspace", nargs="?", metavar="DIR", help="only those of this folder")
    listing.add_argument("--query", metavar="TEXT", help="only those whose title or first prompt has this")
    listing.add_argument(
        "--limit", type=_count, default=50, metavar="N", help="at most so many (default: 50)"
    )
    listing.set_defaults(act=_list)
    show = actions.add_parser("show", help="print a session; with --json, its events")
    show.add_argument("id", help="the session, how its id begins, or `last`")
    show.set_defaults(act=_show)
    delete = actions.add_parser("delete", help="delete sessions for good")
    delete.add_argument("id", nargs="+", help="the session, how its id begins, or `last`")
    delete.set_defaults(act=_delete)
    for action in (listing, show, delete):
        action.add_argument("--json", action="store_true", help="one JSON object a line")
        action.add_argument(
            "--db", metavar="URL", help="this database (default: the running server's, or yours)"
        )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    act: Callable[[argparse.Namespace, SessionSource], None] = arguments.act
    act(arguments, source(arguments.db))
    return 0


def _list(arguments: argparse.Namespace, sessions: SessionSource) -> None:
    folder = places.from_caller(arguments.workspace).resolve() if arguments.workspace else None
    rows = sessions.sessions(workspace=folder, query=arguments.query, limit=arguments.limit)
    if arguments.json:
        for row in rows:
            emit(row)
    elif rows:
        cells = [
            (row["id"], _time(row["updated"]), _state(row), row["workspace"], _title(row, 60)) for row in rows
        ]
        columns(cells, ("SESSION", "UPDATED", "STATE", "WORKSPACE", "TITLE"))
    else:
        say("no sessions yet; `etude chat` begins one")


def _show(arguments: argparse.Namespace, sessions: SessionSource) -> None:
    id = find(sessions, arguments.id)
    row = sessions.session(id)
    if arguments.json:
        for event in sessions.events(id):
            emit(event)
        return
    say(f"{_title(row, 100)}")
    say(f"{id}  {row['workspace']}  {row['model']}  {row['mode']}")
    say(f"{_time(row['created'])}  {row['last_seq']} events")
    heads = _Heads()
    for event in sessions.events(id):
        for line in [*heads.before(event["type"], event["data"]), *_lines(event["type"], event["data"])]:
            say(line)


def _delete(arguments: argparse.Namespace, sessions: SessionSource) -> None:
    for wanted in arguments.id:
        id = find(sessions, wanted)
        sessions.delete(id)
        if arguments.json:
            emit({"id": id, "deleted": True})
        else:
            say(f"deleted {id}")


class _Heads:
    """The headings of calls, which run side by side: said again where another call's have come between."""

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}
        self._under = ""

    def before(self, type: str, data: dict[str, Any]) -> list[str]:
        """The lines that stand before those of an event."""
        id = str(data.get("call_id") or "")
        if type == "tool.call":
            self._titles[id] = f"● {one_line(data.get('title') or data['name'], 100)}"
        if id not in self._titles or id == self._under or type not in ("tool.call", "tool.result", "edit"):
            return []
        self._under = id
        return ["", self._titles[id]]


def _lines(type: str, data: dict[str, Any]) -> list[str]:
    """An event as people read a conversation; nothing for events that are only bookkeeping."""
    if type in ("prompt", "steered"):
        return ["", *(f"› {line}" for line in clean(data["text"]).splitlines())]
    if type == "summary":
        head = "Older steps were left out." if data.get("fallback") else "Earlier messages were summarised:"
        return ["", f"· {head}", *(f"  {line}" for line in clean(data.get("text", "")).splitlines())]
    if type == "generation" and data.get("text") and data.get("purpose") != "summary":
        return ["", *clean(data["text"]).splitlines()]
    if type == "tool.result":
        lines = clean(data["text"]).splitlines()
        more = [f"    … {len(lines) - RESULT_LINES} more lines"] if len(lines) > RESULT_LINES else []
        return [f"    {line}" for line in lines[:RESULT_LINES]] + more
    if type == "edit" and data.get("diff"):
        return [f"    {line}" for line in clean(data["diff"]).splitlines()]
    if type == "error" and not data.get("call_id"):
        return [f"! {clean(data['message'])}"]
    if type == "turn.ended" and data["reason"] != "end_turn":
        return [f"! {data['reason']}{': ' + clean(data['message']) if data.get('message') else ''}"]
    return []


def _title(row: Row, width: int) -> str:
    return one_line(str(row.get("title") or "untitled"), width)


def _state(row: Row) -> str:
    return "running" if row.get("running") else "idle"


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6).astimezone().strftime("%Y-%m-%d %H:%M")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= 9 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999999999")
    return int(text)
