"""`etude token`: tokens by which other people and machines may connect."""

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from server import places
from server.failure import CommandFailed
from server.terminal.lines import columns, emit, say, warn

if TYPE_CHECKING:
    from server.auth import NamedToken


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="make a token and print it; it is never shown again")
    add.add_argument("name", help="whose token it is: letters, digits and . _ @ -")
    add.add_argument("--user", help="user that its sessions belong to (default: NAME)")
    listing = actions.add_parser("list", help="list the names of tokens")
    remove = actions.add_parser("remove", help="remove a token; it stops working at once")
    remove.add_argument("name")
    for action in (add, listing, remove):
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from server.auth import TokenError, Tokens

    try:
        tokens = Tokens.load(places.data_dir() / "tokens.json")
        if arguments.action == "add":
            token = tokens.add(arguments.name, arguments.user)
            if arguments.json:
                emit({"name": arguments.name, "user": arguments.user or arguments.name, "token": token})
            else:
                say(token)
                warn("keep it: only its hash is stored. Use it as ETUDE_TOKEN beside ETUDE_SERVER")
        elif arguments.action == "remove":
            tokens.remove(arguments.name)
            if arguments.json:
                emit({"name": arguments.name, "removed": True})
            else:
                say(f"removed {arguments.name}: whoever uses it is refused from now on")
        else:
            _list(tokens.list(), as_json=arguments.json)
    except TokenError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"cannot keep tokens in {places.data_dir()} ({error})") from error
    return 0


def _list(tokens: "list[NamedToken]", *, as_json: bool) -> None:
    rows = [
        (token.name, token.user_id, datetime.fromtimestamp(token.created, UTC).isoformat())
        for token in tokens
    ]
    if as_json:
        for name, user, created in rows:
            emit({"name": name, "user": user, "created": created})
    elif rows:
        columns(rows, ("NAME", "USER", "CREATED"))
    else:
        say("no tokens; the local user needs none")
