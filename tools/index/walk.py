"""The files of a workspace as ripgrep sees them: hidden ones, none that git ignores, none of `.git`."""

import os
import subprocess
from collections.abc import Iterator
from typing import Final

from tools.errors import EnvironmentFault
from tools.ripgrep import binary

MAX_WALKED: Final = 500_000
"""Names taken from one walk; what lies beyond is not indexed, and that is said."""
CHUNK: Final = 1 << 18


class Walk:
    """Iterate to walk; each step takes what has come so far. Then `paths` are there, and `more` says whether
    there were too many.

    `folder` is an open descriptor of the workspace; `below` are folders in it to walk without going deeper,
    all of it where there are none.
    """

    def __init__(self, folder: int, below: tuple[str, ...] = ()) -> None:
        self._folder, self._below = folder, below
        self.paths: list[str] = []
        self.more = False

    def __iter__(self) -> Iterator[None]:
        starts = [f"./{one}" for one in self._below] or ["."]
        flags = [
            "--files",
            "--null",
            "--no-config",
            "--hidden",
            "--no-follow",
            "--glob=!.git",
            "--no-messages",
        ]
        flags += ["--max-depth=1"] * bool(self._below)
        try:
            process = subprocess.Popen(
                [str(binary()), *flags, "--", *starts],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # To run there is much quicker than to name the descriptor in each path, and as safe.
                cwd=f"/proc/self/fd/{self._folder}",
                env={"LC_ALL": "C.UTF-8"},
                pass_fds=(self._folder,),
            )
        except OSError as error:
            raise EnvironmentFault(f"ripgrep could not be started: {error.strerror}.") from error
        assert process.stdout is not None
        prefix = len("./")
        rest = b""
        try:
            while chunk := os.read(process.stdout.fileno(), CHUNK):
                *names, rest = (rest + chunk).split(b"\0")
                self.paths += [os.fsdecode(name)[prefix:] for name in names]
                if len(self.paths) > MAX_WALKED:
                    self.more = True
                    del self.paths[MAX_WALKED:]
                    break
                yield
        finally:
            process.stdout.close()
            process.kill()
            process.wait()
