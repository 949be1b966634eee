"""The front door: the `etude` command.

Nothing but `sys` and `os` may be imported at module level. When Python is started inside a repository,
or with `PYTHONPATH`, that repository's modules stand before the standard library; `secure` removes
them before anything else is imported.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

ROOMS = ("tools", "agent", "server", "trainer", "migrations")
"""Our import packages. Their names are plain, so a stranger may own a package of the same name."""

COMMANDS = {
    "serve": ("server.commands.serve", "serve workspaces: chat page, editors, API"),
    "chat": ("server.commands.chat", "talk with the agent in this terminal"),
    "run": ("server.commands.run", "give the agent one task and no person to ask"),
    "acp": ("server.commands.acp", "speak the Agent Client Protocol on stdin and stdout, for editors"),
    "sessions": ("server.commands.sessions", "list, show or delete sessions"),
    "rules": ("server.commands.rules", "list or revoke what runs without asking"),
    "models": ("server.commands.models", "show the models that can be used here"),
    "token": ("server.commands.token", "add, list or remove the tokens of people"),
    "config": ("server.commands.config", "show every setting and where it comes from"),
    "store": ("server.commands.store", "maintain the database"),
    "doctor": ("server.commands.doctor", "say what works here and what to do about what does not"),
}

USAGE = 2
FAILED = 1
INTERRUPTED = 130


def home() -> str:
    """The folder that holds this file, and so the rooms."""
    return os.path.dirname(os.path.realpath(__file__))


def _trusted() -> set[str]:
    """Folders of Python's own that `PYTHONPATH` may name without being a stranger's."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    folders = {home(), library, os.path.join(library, "lib-dynload")}
    site = sys.modules.get("site")
    if site is not None:
        folders.update(site.getsitepackages())
        folders.add(site.getusersitepackages())
    return {os.path.realpath(folder) for folder in folders}


def secure() -> str:
    """Make imports ours alone, for this process and its children. Returns the caller's directory.

    Drops what came from the caller's directory or `PYTHONPATH`, and refuses to start (exit 2) when a
    room would still be imported from elsewhere than beside this file.
    """
    try:
        caller = os.getcwd()
    except FileNotFoundError:
        raise _refusal(
            "the current directory no longer exists; change to one that does and try again"
        ) from None
    foreign = {
        os.path.realpath(part or caller) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    }
    foreign.add(os.path.realpath(caller))
    foreign -= _trusted()
    sys.path[:] = [
        entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) not in foreign
    ]
    if home() not in {os.path.realpath(entry) for entry in sys.path}:
        sys.path.append(home())
    os.environ.pop("PYTHONPATH", None)
    os.environ["PYTHONSAFEPATH"] = "1"
    _check_rooms()
    return caller


def _check_rooms() -> None:
    from importlib.util import find_spec  # a frozen module: no path is searched for it

    for room in ROOMS:
        spec = find_spec(room)
        ours = os.path.join(home(), room)
        if spec is None:
            raise _refusal(f"its own package {room!r} is missing from {home()}; install Etude again")
        found = (
            os.path.dirname(spec.origin)
            if spec.origin
            else next(iter(spec.submodule_search_locations or ()), "?")
        )
        if os.path.realpath(found) != ours:
            raise _refusal(
                f"the package {room!r} would be imported from {found} instead of {ours}; "
                f"install Etude in an environment of its own, or remove that package from this one"
            )


def _refusal(why: str) -> SystemExit:
    sys.stderr.write(f"etude: refusing to start: {why}\n")
    return SystemExit(USAGE)


def _parser(chosen: str | None) -> "argparse.ArgumentParser":
    """The whole command line; only the chosen sub-command is imported."""
    import argparse
    from importlib import import_module

    parser = argparse.ArgumentParser(
        prog="etude",
        description="A coding-agent server that practises on its own sessions.",
        epilog="`etude COMMAND --help` explains a command. Exit: 0 done, 1 failed, 2 usage or configuration, "
        "3 not available here, 130 interrupted.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        command.set_defaults(parser=command)
        if name == chosen:
            import_module(module).configure(command)
    return parser


def _report_briefly(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """The hook for defects of ours: one line, the traceback on demand."""
    sys.stderr.write(
        f"etude: internal error: {kind.__name__}: {error} (a defect of Etude's; "
        "run again with ETUDE_DEBUG=1 for the traceback, and please report it)\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit code; argparse and refusals raise `SystemExit`."""
    caller = secure()
    arguments = sys.argv[1:] if arguments is None else arguments
    if not os.environ.get("ETUDE_DEBUG"):
        sys.excepthook = _report_briefly

    from server import places
    from server.failure import CommandFailed

    places.anchor(caller)
    parser = _parser(next((word for word in arguments if not word.startswith("-")), None))
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        getattr(parsed, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if parsed.version:
        from importlib.metadata import version

        sys.stdout.write(f"etude {version('etude')}\n")
        return 0
    if parsed.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        code = parsed.run(parsed)
        sys.stdout.flush()
    except CommandFailed as failure:
        if os.environ.get("ETUDE_DEBUG"):
            raise
        sys.stderr.write(f"etude: {failure}\n")
        return failure.code
    except KeyboardInterrupt:
        sys.stderr.write("etude: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # `etude sessions list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
