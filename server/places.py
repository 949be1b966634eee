"""Where Etude keeps its files, and where its caller stood.

Etude never works with a workspace as its current directory: `anchor` moves it into the data folder
and remembers where it was called from, so that relative arguments still mean what the caller meant.
"""

import os
import shutil
import sys
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_data_path

_FOLDERS = ("ETUDE_DATA", "ETUDE_CONFIG", "ETUDE_CACHE")
_CALLER = "ETUDE_CALLER"


def anchor(directory: str) -> None:
    """Leave `directory` for the data folder (for `/` when that cannot be made)."""
    for name in _FOLDERS:
        if os.environ.get(name):
            os.environ[name] = os.path.join(directory, os.path.expanduser(os.environ[name]))
    os.environ[_CALLER] = directory
    folder = data_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chdir(folder)
    except OSError:  # an unwritable home: commands that need the data folder say so themselves
        folder = Path(os.path.abspath(os.sep))
        os.chdir(folder)
    os.environ["PWD"] = str(folder)


def caller() -> Path:
    """The directory in which the user typed the command."""
    return Path(os.environ.get(_CALLER) or os.getcwd())


def from_caller(path: str) -> Path:
    """`path` as the user meant it: absolute, `~` expanded, relative to where they stood."""
    return Path(os.path.normpath(caller() / os.path.expanduser(path)))


def data_dir() -> Path:
    """`$ETUDE_DATA`, else the platform's data folder for this user."""
    named = os.environ.get("ETUDE_DATA")
    return Path(named) if named else user_data_path("etude", appauthor=False)


def cache_dir() -> Path:
    """`$ETUDE_CACHE`, else the platform's cache folder: what may be deleted at any time."""
    named = os.environ.get("ETUDE_CACHE")
    return Path(named) if named else user_cache_path("etude", appauthor=False)


def config_file() -> Path:
    """`$ETUDE_CONFIG`, else `etude.toml` in the platform's configuration folder."""
    named = os.environ.get("ETUDE_CONFIG")
    return Path(named) if named else user_config_path("etude", appauthor=False) / "etude.toml"


def server_file() -> Path:
    """Where a running server says how to reach it."""
    return data_dir() / "server.json"


def database_url() -> str:
    """The default database: a file in the data folder."""
    return f"sqlite:///{data_dir() / 'etude.db'}"


def typed() -> str:
    """How to type `etude` here: where it is not on the `PATH`, the way it was typed this time."""
    called = sys.argv[0]
    return "etude" if shutil.which("etude") or Path(called).name != "etude" else called


def program() -> list[str]:
    """The command that starts Etude again with this interpreter, whatever the current directory holds."""
    return [sys.executable, "-P", str(Path(__file__).resolve().parents[1] / "etude.py")]
