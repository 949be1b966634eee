"""A repository that holds everything a tool can stumble over, and as many files as are asked for.

The many files are hard links to a few contents: real files with names of their own, and made quickly.
"""

import os
import socket
import subprocess
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

FILES: Final = int(os.environ.get("ETUDE_TEST_MONSTER", "20000"))
"""How many files the tests ask for."""
NEEDLE: Final = "needle_in_the_monster"
SECRET: Final = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
"""A made-up token; it is part of a file's name and stands in `.env`."""
LATIN: Final = os.fsdecode(b"caf\xe9.py")
BROKEN_NAME: Final = "two\nlines.py"
DEEP: Final = 200
SPARSE: Final = 4 << 30
BUNDLE: Final = 1_000_000
CONTENTS: Final = 200
"""Different contents of the many files."""
IN_HUGE: Final = 0.5
"""The share of them that lies in one folder."""
IN_FOLDER: Final = 500
"""How many lie in each of the other folders."""


@dataclass(frozen=True)
class Monster:
    """`root` is the repository, `outside` a folder beside it that links in it lead to. `files` is how many
    plain files were asked for."""

    root: Path
    outside: Path
    files: int

    @property
    def bottom(self) -> str:
        """The file in the deepest folder, as a path of the workspace."""
        return "/".join(["deep"] + ["d"] * (DEEP - 1) + ["bottom.py"])

    @property
    def in_huge(self) -> int:
        return int(self.files * IN_HUGE)

    def guarded(self) -> dict[str, tuple[int, str]]:
        """Mode and digest of all that no tool may change: the nested repositories' own files, and outside."""
        found: dict[str, tuple[int, str]] = {}
        for folder in (self.root / "nested" / ".git", self.root / ".git" / "modules", self.outside):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    digest = blake2b(path.read_bytes(), digest_size=16).hexdigest()
                    found[str(path)] = path.stat().st_mode, digest
        pointer = self.root / "sub" / ".git"
        found[str(pointer)] = pointer.stat().st_mode, pointer.read_text()
        return found


def monster(folder: Path, files: int) -> Monster:
    """Make `folder/workspace` with so many plain files and one or several of each odd kind."""
    made = Monster(folder / "workspace", folder / "outside", files)
    made.outside.mkdir(parents=True)
    (made.outside / "private.txt").write_text(f"outside {NEEDLE}\n")
    _repository(folder / "origin", "library.py", "def borrowed():\n    return 1\n")
    _repository(made.root, "main.py", f"def main():\n    return '{NEEDLE}'\n")
    _git(made.root, "submodule", "--quiet", "add", str(folder / "origin"), "sub")
    _git(folder, "clone", "--quiet", str(folder / "origin"), str(made.root / "nested"))
    tracked = _many(made)
    _index(made.root, tracked)
    _git(made.root, "commit", "-qm", "all of it")
    _odd(made)
    return made


def _many(made: Monster) -> list[tuple[str, int]]:
    """The many files; gives their paths, each with the number of its content."""
    plain = made.root / "contents"
    plain.mkdir()
    for number in range(CONTENTS):
        (plain / f"c{number}.py").write_text(_content(number))
    (made.root / "huge").mkdir()
    placed: list[tuple[str, int]] = [(f"contents/c{number}.py", number) for number in range(CONTENTS)]
    folder = os.open(made.root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number in range(made.files - CONTENTS):
            content = number % CONTENTS
            if number < made.in_huge:
                path = f"huge/file{number:06}.py"
            else:
                above, below = divmod(number - made.in_huge, IN_FOLDER)
                if below == 0:
                    os.makedirs(made.root / f"many/part{above:04}", exist_ok=True)
                path = f"many/part{above:04}/file{below:03}.py"
            os.link(f"contents/c{content}.py", path, src_dir_fd=folder, dst_dir_fd=folder)
            placed.append((path, content))
    finally:
        os.close(folder)
    return placed


def _content(number: int) -> str:
    words = f"def work_{number}(value):\n    total = value * {number}\n    return total\n"
    return words + (f"\n\n# {NEEDLE}\n" if number == 0 else "")


def _index(root: Path, tracked: list[tuple[str, int]]) -> None:
    """Track the files: their contents are hashed once each, not once for each name."""
    paths = "".join(f"contents/c{number}.py\n" for number in range(CONTENTS))
    hashed = _git(root, "hash-object", "-w", "--stdin-paths", given=paths).split()
    entries = "".join(f"100644 {hashed[content]}\t{path}\n" for path, content in tracked)
    _git(root, "update-index", "--add", "--index-info", given=entries)
    _git(root, "update-index", "-q", "--refresh")


def _odd(made: Monster) -> None:
    """Everything that is no plain file, or has no plain name."""
    root = made.root
    with (root / "sparse.bin").open("wb") as sparse:
        sparse.truncate(SPARSE)
    head, tail = "var a=1;" * (BUNDLE // 16), ";var b=2" * (BUNDLE // 16)
    (root / "bundle.min.js").write_text(head + f"var {NEEDLE}=3" + tail)
    odd = root / "odd"
    odd.mkdir()
    os.mkfifo(odd / "fifo")
    _socket(odd, "socket")
    for name, target in (
        ("itself", "itself"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("round", "."),
        ("up", ".."),
        ("dangling", "nowhere/at/all"),
        ("out", str(made.outside)),
        ("private", str(made.outside / "private.txt")),
        ("link.py", "../main.py"),
    ):
        (odd / name).symlink_to(target)
    for name in (LATIN, BROKEN_NAME, "esc\x1b[31mred.py", " spaces .py", "-rf.py", "*.py"):
        (odd / name).write_text(f"def odd():\n    return '{NEEDLE}'\n")
    strange = odd / os.fsdecode(b"f\xf6lder")
    strange.mkdir()
    (strange / "inside.py").write_text("def inside_strange():\n    return 1\n")
    (odd / f"{SECRET}.txt").write_text("named by a token\n")
    (root / ".env").write_text(f"GITHUB_TOKEN={SECRET}\n")
    _deep(root, "deep", "d", "bottom.py")
    # Longer than any path may be: only whoever goes down folder by folder gets there.
    _deep(root, "abyss", "a-folder-with-a-long-name", "lost.py")


def _deep(root: Path, first: str, name: str, file: str) -> None:
    """DEEP folders in one another, and a file in the last."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for each in [first] + [name] * (DEEP - 1):
        os.mkdir(each, dir_fd=at)
        below = os.open(each, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = below
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at)
    os.write(descriptor, b"def at_the_bottom():\n    return 1\n")
    os.close(descriptor)
    os.close(at)


def _socket(folder: Path, name: str) -> None:
    """A listening socket's name; a path to it may be longer than an address can be."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{directory}/{name}")
    finally:
        os.close(directory)


def _repository(path: Path, name: str, content: str) -> None:
    path.mkdir()
    (path / name).write_text(content)
    _git(path, "init", "-q")
    _git(path, "add", "-A")
    _git(path, "commit", "-qm", "start")


def _git(at: Path, *arguments: str, given: str = "") -> str:
    settings = ["user.name=Test", "user.email=test@example.org", "protocol.file.allow=always", "gc.auto=0"]
    options = [word for setting in settings for word in ("-c", setting)]
    done = subprocess.run(
        ["git", *options, *arguments], cwd=at, input=given, check=True, capture_output=True, text=True
    )
    return done.stdout
