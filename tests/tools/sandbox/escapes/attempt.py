"""What an attempt to get out of the sandbox is, and how it is written down."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.sandbox import Ran, Sandbox, Tier

SECRET: Final = "s3cret-9d1f6c"
ESCAPED: Final = b"ESCAPED"
BOTH: Final[frozenset[Tier]] = frozenset({"bubblewrap", "landlock"})
BUBBLEWRAP: Final[frozenset[Tier]] = frozenset({"bubblewrap"})

PRELUDE: Final = """
import ctypes, errno, fcntl, mmap, os, signal, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
arm = os.uname().machine == "aarch64"
def call(x86, arm64, *arguments):
    "Whether the system call did something; it has one number on each machine."
    ctypes.set_errno(0)
    return libc.syscall(ctypes.c_long(arm64 if arm else x86), *arguments) >= 0
def did(what): print("ESCAPED", what, flush=True)
def tried(what, action):
    try: found = action()
    except (OSError, ValueError, OverflowError) as error: print(what, error)
    else: did(f"{what}: {found}")
def syscall(what, *arguments):
    if call(*arguments): did(what)
"""


@dataclass(slots=True)
class Stage:
    """The world around one attempt. `victim` is a file anyone may write, as far as modes go; `host` a process
    with the same uid as commands have; `docker` and `tcp` are somebody's listeners."""

    sandbox: Sandbox
    root: Path
    home: Path
    outside: Path
    victim: Path
    host: int
    tcp: int
    udp: int
    terminal: str
    shared_memory: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """`program` is bash, or Python where it begins with `#py`. Words like @ROOT@ stand for what the stage
    has. Besides what is observed after every attempt, it got out if `escaped` says so, from outside.

    `tiers` are those that claim to refuse it. `prepare` runs on the workspace before the sandbox starts.
    `control`: unconfined, as an ordinary user, the same program does succeed.
    """

    name: str
    program: str
    tiers: frozenset[Tier] = BOTH
    escaped: Callable[[Stage, Ran], bool] | None = None
    prepare: Callable[[Path], None] | None = None
    control: bool = False

    def text(self, stage: Stage) -> str:
        words = {
            "@ROOT@": stage.root,
            "@HOME@": stage.home,
            "@OUT@": stage.outside,
            "@SECRET@": SECRET,
            "@VICTIM@": stage.victim,
            "@PID@": stage.host,
            "@TCP@": stage.tcp,
            "@UDP@": stage.udp,
            "@PTS@": stage.terminal,
            "@SHM@": stage.shared_memory,
            "@RUN@": stage.sandbox.inside,
            "@HOSTRUN@": stage.sandbox.run_folder,
        }
        text = self.program.strip()
        for word, value in words.items():
            text = text.replace(word, str(value))
        return text
