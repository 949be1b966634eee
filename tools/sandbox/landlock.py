"""The second tier: Landlock, a system-call filter and limits, where namespaces cannot be had.

Landlock is a list of what may be opened; nothing can be taken out of a folder that is on it. So what a
folder must hide is left out by listing its other entries one by one, and what the workspace must not have
written in it (`.git/config`, hooks) cannot be held here at all.
"""

import marshal
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.sandbox.bubblewrap import SHOWN_OF_ETC, Identity, environment
from tools.sandbox.landlocked import abi
from tools.sandbox.policy import SandboxPolicy, SandboxUnavailable
from tools.sandbox.toolchains import SYSTEM, Toolchains
from tools.sandbox.trusted import Trusted

NEWEST: Final = 7
"""The newest version that these tables know; a newer kernel is used as if it were this one."""

_FILES: Final = {1: 13, 2: 14, 3: 15, 5: 16}
"""Version → how many rights over files it knows, counted from the lowest bit."""
_READ: Final = 1 << 2 | 1 << 3  # files, folders
_LIST: Final = 1 << 3
_RUN: Final = _READ | 1 << 0
_WRITE: Final = 1 << 1 | 1 << 14  # write, truncate
_OWN: Final = _RUN | _WRITE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13
"""All but making devices and talking to them."""
_DEVICE: Final = 1 << 2 | 1 << 1 | 1 << 14 | 1 << 15

_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_ETC: Final = ("passwd", "group", "hosts", "nsswitch.conf", "host.conf", "gai.conf", "shells")
_ENTRIES: Final = 4096

Rule = tuple[str, int]


def version() -> int:
    """What this kernel speaks, at most `NEWEST`; 0 for none."""
    return min(abi(), NEWEST)


def handled(speaks: int, network: bool) -> tuple[int, int, int]:
    """What is forbidden unless a rule allows it: rights over files, over TCP ports, and scopes.

    TCP since version 4; abstract sockets and signals to anyone outside since version 6.
    """
    count = max(bits for since, bits in _FILES.items() if since <= speaks)
    ports = 0b11 if speaks >= 4 and not network else 0
    scopes = 0b11 if speaks >= 6 else 0
    return (1 << count) - 1, ports, scopes


@dataclass(frozen=True, slots=True)
class Private:
    """Folders below the sandbox's run folder that commands may write: made for them, gone with it."""

    tmp: Path
    home: Path


def prepare(run: Path, toolchains: Toolchains, trusted: Trusted, user: tuple[int, int] | None) -> Private:
    """Make the private folders. The home leads to the tool chains of the real one by links, so that what
    looks for `~/.cargo` or `~/.pyenv` finds it. `user` is (uid, gid) of commands where it is not ours."""
    private = Private(run / "tmp", run / "home")
    made = [private.tmp, private.home]
    for path in made:
        path.mkdir(mode=0o700)
    pairs = [(place, root) for place in toolchains.homes for root in toolchains.roots]
    for place, root in pairs:
        link = private.home / root.relative_to(place) if place in root.parents else None
        if link is not None and not os.path.lexists(link) and link.parent.resolve().is_relative_to(run):
            link.parent.mkdir(parents=True, exist_ok=True)
            made += [parent for parent in link.parents if private.home in parent.parents]
            link.symlink_to(root)
    for relative, path in trusted.in_home:
        target = private.home / path
        if target.parent.resolve().is_relative_to(private.home):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run / relative, target)
            made += [target, *(parent for parent in target.parents if private.home in parent.parents)]
    if user is not None:
        for path in made:
            os.chown(path, *user)
    return private


def rules(
    root: Path, run: Path, private: Private, policy: SandboxPolicy, toolchains: Toolchains, trusted: Trusted
) -> list[Rule]:
    """Everything that commands may open, and how."""
    found: list[Rule] = [(str(path), _RUN) for path in SYSTEM]
    names = (*SHOWN_OF_ETC, *_ETC, *(["resolv.conf"] if policy.whole_network else []))
    found += [(f"/etc/{name}", _RUN) for name in names]
    found += [(f"/dev/{name}", _DEVICE) for name in _DEVICES]
    found += [("/proc", _READ)]
    for path in toolchains.roots:
        found += _around(path, toolchains.covered)
    found += [(str(path), _READ) for path in trusted.of_system]
    found += [(str(run), _READ), (str(run / "io"), _READ | _WRITE)]
    found += [(str(path), _OWN) for path in (private.tmp, private.home, root)]
    return found


def _around(path: Path, covered: tuple[Path, ...]) -> Iterator[Rule]:
    """Rules for all of `path` but what is covered in it: of a folder with something covered, each other
    entry there is now. Its own names are shown only where none of them is a folder to hide."""
    if path in covered:
        return
    inside = [other for other in covered if path in other.parents]
    if not inside:
        yield str(path), _RUN
        return
    if not any(other.is_dir() for other in inside):
        yield str(path), _LIST
    try:
        entries = sorted(path.iterdir())[:_ENTRIES]
    except OSError:  # unreadable for us: unreadable for commands
        return
    for entry in entries:
        yield from _around(entry, covered)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the launcher is told, and what commands find in their environment."""

    environment: dict[str, str]
    _handled: tuple[int, int, int]
    _rules: list[Rule]
    _user: tuple[int, int] | None

    def order(self, server: int, code: int, block: int, program: Sequence[str]) -> bytes:
        """`code` and `block` are descriptors: of the filter, and of a pipe whose byte lets it begin."""
        order = {
            "server": server,
            "handled": self._handled,
            "rules": self._rules,
            "filter": code,
            "block": block,
            "user": self._user,
            "program": list(program),
        }
        return marshal.dumps(order)


def plan(
    root: Path,
    run: Path,
    policy: SandboxPolicy,
    toolchains: Toolchains,
    identity: Identity,
    trusted: Trusted,
    user: tuple[int, int] | None,
    speaks: int,
) -> Plan:
    """Raises: SandboxUnavailable: this kernel has no Landlock."""
    if not speaks:
        raise SandboxUnavailable(f"{missing()} Use bubblewrap, or set sandbox.tier to none.")
    private = prepare(run, toolchains, trusted, user)
    # Git would not start where it sees a configuration of the system that it may not read.
    own = {"HOME": str(private.home), "TMPDIR": str(private.tmp), "GIT_CONFIG_NOSYSTEM": "1"}
    given = environment(policy, toolchains, identity, trusted, private_tmp=False)
    allowed = rules(root, run, private, policy, toolchains, trusted)
    return Plan({**given, **own}, handled(speaks, policy.whole_network), allowed, user)


def user_of(root: Path) -> tuple[int, int] | None:
    """Who commands run as, where that is not who we are.

    Raises:
        SandboxUnavailable: it would have to be root.
    """
    if os.getuid() != 0:
        return None
    status = root.stat()
    if status.st_uid == 0:
        raise SandboxUnavailable(
            f"The server and {root} both belong to root. Without bubblewrap, commands run as the owner of "
            "the workspace, and they are never run as root: give the folder to another account "
            "(`chown -R`), or start the server as an ordinary user."
        )
    return status.st_uid, status.st_gid or status.st_uid  # the group of root opens doors, too


def tasks_of(uid: int) -> int:
    """How many processes and threads this user has: a limit on them counts all, wherever they run."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:  # gone, or hidden from us: then it is not ours
                continue
    return count


def weaknesses(speaks: int) -> tuple[str, ...]:
    """What this tier does not hold, in a user's words."""
    found = [
        "`.git/config` and hooks of the workspace can be changed by commands",
        "modes and times of your other files can be changed, though not their content",
        "names of files and command lines of other processes can be seen",
        "there is no quota on disk space",
    ]
    if speaks < 6:
        found.append("processes of this account outside can be sent signals")
    return tuple(found)


def limitations() -> tuple[str, ...]:
    """What does not work for commands here that works in bubblewrap."""
    return (
        "no sockets at all while the network is off, so tests that start a server fail",
        "no shared memory (/dev/shm), no terminals, and temporary files in $TMPDIR rather than /tmp",
        "git works only where the repository lies in the workspace",
    )


def missing() -> str:
    """Why the tier cannot be had here; empty when it can."""
    if version():
        return ""
    return "This kernel has no Landlock (Linux 5.13 or newer, with `landlock` among its security modules)."
