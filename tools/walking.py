"""The files below a folder, as ripgrep walks them: fast, ignoring what git ignores, following no link."""

import os
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.confinement import locate
from tools.errors import EnvironmentFault
from tools.files import explained
from tools.ripgrep import binary

CHUNK: Final = 1 << 16
POLL: Final = 0.1
"""Seconds until a cancelled walk is noticed."""
COMPLAINTS: Final = 4_096

_PROC: Final = "/proc/self/fd"


@dataclass(slots=True)
class Walk:
    """How a walk ended: `stopped` by its deadline, and what ripgrep complained about."""

    stopped: bool = False
    complaint: str = ""


@contextmanager
def open_folder(root: Path, path: str) -> Iterator[int]:
    """A descriptor of a folder of the workspace, to list it by.

    Raises:
        ToolError: it is no folder, leads outside or may not be read.
    """
    with explained(path), locate(root, path) as place:
        descriptor = os.open(
            place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory
        )
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def files_below(
    root: Path, folder: str, all_files: bool, deadline: float, stop: threading.Event, walk: Walk
) -> Iterator[str]:
    """Paths of regular files below `folder` (canonical), relative to it, in no order. Blocks: for a thread.

    With `all_files`, ignored ones too; git's own folder never. Rules of ignore files above `folder` are not
    applied. Ends at `deadline` (monotonic) or when `stop` is set. The names are ripgrep's: look at each one
    again before it is shown.

    Raises:
        ToolError: `folder` is no folder of the workspace; EnvironmentFault: ripgrep failed.
    """
    with open_folder(root, folder) as descriptor:
        given = f"{_PROC}/{descriptor}" if os.path.exists(_PROC) else str(root / folder)
        flags = ["--no-ignore"] if all_files else ["--no-require-git"]
        if folder != ".":
            # ripgrep takes anchored rules of folders above for rules at any depth: the caller applies those.
            flags.append("--no-ignore-parent")
        with subprocess.Popen(
            [
                *(str(binary()), "--no-config", "--files", "--null", "--hidden", "--no-follow"),
                *(*flags, "--glob=!.git", "--", given),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
            pass_fds=(descriptor,),
        ) as process:
            try:
                for name in _names(process, deadline, stop, walk):
                    yield name.removeprefix(given).lstrip("/")
                walk.complaint = walk.complaint.replace(f"{given}/", "").removeprefix("rg: ")
            finally:
                process.kill()


def _names(
    process: "subprocess.Popen[bytes]", deadline: float, stop: threading.Event, walk: Walk
) -> Iterator[str]:
    assert process.stdout is not None and process.stderr is not None
    output, errors = process.stdout.fileno(), process.stderr.fileno()
    reading = {output, errors}
    held = complaints = b""
    while reading:
        if stop.is_set() or time.monotonic() > deadline:
            walk.stopped = True
            return
        for descriptor in select.select(reading, (), (), POLL)[0]:
            chunk = os.read(descriptor, CHUNK)
            if not chunk:
                reading.discard(descriptor)
            elif descriptor == errors:
                complaints = (complaints + chunk)[:COMPLAINTS]
            else:
                *whole, held = (held + chunk).split(b"\0")
                yield from map(os.fsdecode, whole)
    walk.complaint = complaints.decode("utf-8", "replace").strip()
    if process.wait() == 2 and not walk.complaint:
        raise EnvironmentFault("ripgrep failed to list the files and did not say why. Try again.")
