"""`etude rules`: list and revoke what was allowed for good."""

import argparse
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from agent.rule import spoken
from server import places
from server.commands.database import with_store
from server.failure import CommandFailed, Usage
from server.terminal.host import Host, named, running
from server.terminal.lines import columns, emit, say
from server.terminal.style import one_line

if TYPE_CHECKING:
    from server.store import Store

Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list what runs without asking, by workspace")
    listing.add_argument("--workspace", metavar="DIR", help="only in this folder")
    revoking = actions.add_parser("revoke", help="take rules back: what they allowed is asked again")
    revoking.add_argument("id", nargs="+", help="the rule, or how its id begins")
    for action in (listing, revoking):
        action.add_argument("--json", action="store_true", help="one JSON object a line")
        action.add_argument(
            "--db", metavar="URL", help="this database (default: the running server's, or yours)"
        )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    host = None if arguments.db else named() or running()
    rules: RuleSource = Served(host) if host else Stored(arguments.db)
    if arguments.action == "list":
        _list(arguments, rules)
    else:
        for wanted in arguments.id:
            row = _find(rules, wanted)
            rules.revoke(row)
            if arguments.json:
                emit({"id": row["id"], "revoked": True})
            else:
                say(f"revoked {_allows(row)} in {row['workspace']}")
    return 0


class RuleSource(Protocol):
    """Rules as plain records, the fields of `RuleOut`."""

    def rules(self, workspace: str | None) -> list[Row]: ...

    def revoke(self, row: Row) -> None: ...


class Served:
    """The rules of a server."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def rules(self, workspace: str | None) -> list[Row]:
        where = f"?workspace={quote(workspace)}" if workspace else ""
        return list(self.host.get(f"/api/rules{where}")["rules"])

    def revoke(self, row: Row) -> None:
        self.host.delete(f"/api/rules/{quote(row['id'])}")


class Stored:
    """The rules of a database."""

    def __init__(self, db: str | None) -> None:
        self.db = db

    def rules(self, workspace: str | None) -> list[Row]:
        return [asdict(row) for row in with_store(self.db, lambda store: store.rules(workspace=workspace))]

    def revoke(self, row: Row) -> None:
        async def work(store: "Store") -> None:
            from server.revoking import revoke

            for known in await store.rules(workspace=row["workspace"]):
                if known.id == row["id"]:
                    await revoke(store, known, {})

        with_store(self.db, work)


def _list(arguments: argparse.Namespace, rules: RuleSource) -> None:
    folder = str(places.from_caller(arguments.workspace).resolve()) if arguments.workspace else None
    rows = rules.rules(folder)
    if arguments.json:
        for row in rows:
            emit(row)
    elif rows:
        cells = [(row["id"], _allows(row), row["workspace"], _time(row["made"])) for row in rows]
        columns(cells, ("RULE", "ALLOWS", "WORKSPACE", "MADE"))
    else:
        say('no rules; an answer of "always" makes one')


def _find(rules: RuleSource, wanted: str) -> Row:
    found = [row for row in rules.rules(None) if row["id"].startswith(wanted.lower())]
    if not found:
        raise CommandFailed(f"no rule begins with {wanted!r}; `etude rules list` shows those there are")
    if len(found) > 1:
        raise Usage(f"{len(found)} rules begin with {wanted!r}; give more of the id")
    return found[0]


def _allows(row: Row) -> str:
    return one_line(spoken(str(row["rule"])), 60)


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6).astimezone().strftime("%Y-%m-%d %H:%M")
