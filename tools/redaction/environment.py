"""Secrets that need no detecting: those in an environment, and those in a workspace's own secret files."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tools.errors import ToolError
from tools.files import list_directory, read_bytes
from tools.redaction.assignments import kind_of
from tools.redaction.pgpass import passwords
from tools.redaction.redactor import Redactor
from tools.redaction.values import distinctive, stands_in

_NAME: Final = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PWD|PASS|CREDENTIALS?|AUTH|DSN|COOKIE)(?:_\d+|_B64|_BASE64|_VALUE)?$",
    re.IGNORECASE,
)
_NOT_SECRET: Final = re.compile(r"^(?:OLD)?PWD$|PUBLIC_KEY$|^SSH_AUTH|SOCK", re.IGNORECASE)
_FILES: Final = re.compile(
    r"^(?:\.env(?:\..*|rc)?|.*\.env|\.npmrc|\.pypirc|\.netrc|_netrc|\.pgpass|\.git-credentials|\.htpasswd|"
    r"credentials(?:\..*)?|secrets?\.(?:ya?ml|json|toml|env|ini|properties|txt)|id_(?:rsa|dsa|ecdsa|ed25519)|"
    r".*\.(?:pem|key|p8)|service[_-]?account.*\.json)$",
    re.IGNORECASE,
)
_EXAMPLE: Final = re.compile(r"\.(?:example|sample|template|dist|md)$", re.IGNORECASE)
_FOLDERS: Final = frozenset(
    (".git/", "node_modules/", ".venv/", "venv/", "__pycache__/", "dist/", "build/", "target/")
)
FILES, FOLDERS, BYTES, NAMES = 64, 64, 262_144, 4000
"""What is looked at in one workspace: files, folders besides the root, bytes of a file, names of a folder."""


def environment_secrets(environ: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Values of an environment that are secrets, with their kinds.

    Those of variables with secret-like names, if they can be told from ordinary text; and those of `named`
    variables, which somebody says hold one.
    """
    found: dict[str, str] = {}
    for name, value in environ.items():
        if (
            _NAME.search(name)
            and not _NOT_SECRET.search(name)
            and distinctive(value.encode("utf-8", "surrogateescape"))
        ):
            found[value] = kind_of(name.lower().encode("utf-8", "surrogateescape"))
    for name in named:
        value = environ.get(name, "")
        if len(value) >= 8 and not stands_in(value.encode("utf-8", "surrogateescape")):
            found[value] = "key"
    return {value.encode("utf-8", "replace").decode(): kind for value, kind in found.items()}


def learn_workspace(redactor: Redactor, root: Path, seen: dict[str, tuple[int, int]]) -> None:
    """Know what the secret files of a workspace hold: `.env` and its like, in the root and its folders.

    `seen` remembers their sizes and times, so that only what changed is read again. Blocks.
    """
    left = FILES
    for folder in ("", *_folders(root)):
        for name in _names(root, folder):
            if left and _FILES.match(name) and not _EXAMPLE.search(name):
                left -= 1
                _learn(redactor, root, f"{folder}{name}", seen)


def _learn(redactor: Redactor, root: Path, path: str, seen: dict[str, tuple[int, int]]) -> None:
    try:
        status = (root / path).lstat()
        mark = (status.st_size, status.st_mtime_ns)
        if seen.get(path) != mark and status.st_size <= BYTES:
            data = read_bytes(root, path, BYTES)[0]
            redactor.learn(data)
            for value in passwords(data) if path.rpartition("/")[2].lower() == ".pgpass" else ():
                if not stands_in(value):
                    redactor.know(value.decode("utf-8", "surrogateescape"), "password")
        seen[path] = mark
    except (ToolError, OSError):  # gone, not a file, or not ours to read: nor can a tool show it
        return


def _names(root: Path, folder: str) -> list[str]:
    try:
        return list_directory(root, folder or ".", NAMES)[0]
    except ToolError:
        return []


def _folders(root: Path) -> list[str]:
    return [name for name in _names(root, "") if name.endswith("/") and name not in _FOLDERS][:FOLDERS]
