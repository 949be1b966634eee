"""`etude store rebuild`: fill the projections again from the log."""

import argparse

from server.commands.database import with_store
from server.terminal.lines import emit, say


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    rebuild = actions.add_parser(
        "rebuild", help="drop every table that follows from the log and fill it again"
    )
    rebuild.add_argument("--db", metavar="URL", help="this database (default: yours)")
    rebuild.add_argument("--json", action="store_true", help="one JSON object a line")
    rebuild.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    rows = with_store(arguments.db, lambda store: store.rebuild())
    if arguments.json:
        emit(rows)
    else:
        for table, count in rows.items():
            say(f"{table}: {count:,} rows")
    return 0
