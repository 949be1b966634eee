"""The three shell scripts that run inside a sandbox: supervisor, interactive shell, runner of our own calls.

Descriptors inside: 3 commands for the shell, 4 statuses, 5 commands for the runner, 6 /dev/null.
"""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

STANDARD: Final = "/usr/local/bin:/usr/bin:/bin"
CONTROL, STATUS, RUNNER, NOTHING = 3, 4, 5, 6

_FILE_KIB: Final = 16 * 1024 * 1024  # no single file over 16 GiB


def trusted(path: str, writable: Iterable[Path]) -> str:
    """The folders of a `PATH` that do not lie in what commands can write."""
    barred = tuple(writable)

    def safe(entry: str) -> bool:
        places = (Path(entry), Path(os.path.realpath(entry)))
        return not any(place == inner or inner in place.parents for place in places for inner in barred)

    return os.pathsep.join(entry for entry in path.split(os.pathsep) if entry.startswith("/") and safe(entry))


def supervisor(
    folder: str, control: int, status: int, runner: int, pids: int | None, trusted: str = STANDARD
) -> str:
    """The first program inside: starts the others and says when the shell ended.

    The limits are set here, inside, where the number of processes counts this sandbox alone. Programs of
    ours are looked for in the folders `trusted`, of which none can be written from inside.
    """
    limit = f"ulimit -u {pids}" if pids is not None else ":"
    return f"""\
exec {CONTROL}<&{control} {STATUS}>&{status} {RUNNER}<&{runner} {control}<&- {status}>&- {runner}<&-
exec {NOTHING}</dev/null >/dev/null 2>&1
umask 022
ulimit -c 0
ulimit -f {_FILE_KIB}
{limit}
echo 500 >/proc/self/oom_score_adj
trap : HUP INT TERM
all=$PATH; PATH={shlex.quote(trusted)}
hash setsid; setsid=${{BASH_CMDS[setsid]:-setsid}}
PATH=$all
"$BASH" --norc --noprofile {folder}/runner.sh <&{RUNNER} {CONTROL}<&- {RUNNER}<&- &
exec {RUNNER}<&-
printf '\\0ready\\0%s\\0\\0' 0 >&{STATUS}
while :; do
  "$setsid" "$BASH" --noprofile --rcfile {folder}/shell.rc --noediting -i <&{CONTROL} {CONTROL}<&-
  printf '\\0exit\\0%s\\0\\0' $? >&{STATUS}
done
"""


SHELL_RC: Final = "set +m +H\nset +o history\ntrap : HUP\nPS1= PS2=\nunset HISTFILE\n"
"""Interactive only so that an interrupt ends a command and not the shell."""


def runner(trusted: str = STANDARD) -> str:
    """Runs what we ask for. A program is first looked for in `trusted`, wherever else its name is found, and
    git reads none of the configuration that a command can write."""
    return f"""\
trap : HUP
unset BASH_ENV ENV LD_PRELOAD
export PATH={shlex.quote(trusted)}:$PATH GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
while IFS= read -r file; do . "$file" & done
"""


def command_line(folder: str, number: int, token: str, cwd: str | None, stdin: str = "") -> str:
    """One line for the shell: run command file `number`, then report its status and the folder.

    `cwd` (quoted) is where this one command runs. The command's own view has none of our descriptors.
    """
    closed = f"{CONTROL}<&- {STATUS}>&- {RUNNER}<&- {NOTHING}<&-"
    source = f"\\builtin . {folder}/c{number}"
    standard = stdin or f"<&{NOTHING} >{folder}/io/o{number} 2>&1"
    report = f"\\builtin printf '\\0%s\\0%s\\0%s\\0' {token}"
    if cwd is None:
        return f'{{ {source}; }} {standard} {closed}; {report} $? "$PWD" >&{STATUS}\n'
    return (
        f"ETUDE_FROM=$PWD; {{ \\builtin cd -- {cwd} && {source}; }} {standard} {closed}; ETUDE_CODE=$?; "
        f'\\builtin cd -- "$ETUDE_FROM"; {report} $ETUDE_CODE "$PWD" >&{STATUS}\n'
    )


def background_line(
    folder: str, number: int, started: str, token: str, cwd: str | None, stdin: str = ""
) -> str:
    """As `command_line`, in a subshell of its own: `started` reports its pid, `token` its end."""
    enter = f"\\builtin cd -- {cwd} && " if cwd is not None else ""
    standard = stdin or f"<&{NOTHING} >{folder}/io/o{number} 2>&1"
    closed = f"{CONTROL}<&- {STATUS}>&- {RUNNER}<&- {NOTHING}<&-"
    inner = f"( export ETUDE_JOB={started}; {enter}\\builtin . {folder}/c{number} ) {standard} {closed}"
    report = "\\builtin printf '\\0%s\\0%s\\0%s\\0'"
    return f"{{ {inner}; {report} {token} $? '' >&{STATUS}; }} & {report} {started} $! '' >&{STATUS}\n"


def one_off(folder: str, number: int, token: str, cwd: str, argv: str, stdin: str) -> str:
    """A file for the runner: one program of ours with its own standard streams."""
    return (
        f"\\builtin printf '\\0%s\\0%s\\0\\0' {token}p $BASHPID >&{STATUS}\n"
        f"( \\builtin cd -- {cwd} && exec {argv} ) <{stdin} >{folder}/io/o{number} 2>{folder}/io/e{number} "
        f"{STATUS}>&- {NOTHING}<&-\n"
        f"\\builtin printf '\\0%s\\0%s\\0\\0' {token} $? >&{STATUS}\n"
    )
