"""The checkers that Etude knows: which files each is for, how it is found and asked.

A new one is an entry of `CHECKERS` and a function in `parsing`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tools.diagnostics import parsing
from tools.diagnostics.finding import Finding

Scope = Literal["file", "project"]


@dataclass(frozen=True, slots=True)
class Checker:
    """`scope` says whether a finding depends on its own file alone or on others too.

    `markers` are files of which one must lie beside or above a checked file (`NAME#TEXT`: and hold that
    text); it runs in that folder. None: it needs no configuration and runs at the root. `programs`
    are tried in order: paths of the workspace, then names on the PATH inside the sandbox. `stdin` holds the
    arguments that check text from standard input in the place of one file ({path}). `worked` are the exit
    codes of a run whose output can be believed.
    """

    name: str
    suffixes: tuple[str, ...]
    programs: tuple[str, ...]
    arguments: tuple[str, ...]
    parse: Callable[[str], list[Finding]]
    scope: Scope
    markers: tuple[str, ...] = ()
    takes_paths: bool = True
    stdin: tuple[str, ...] | None = None
    worked: tuple[int, ...] = (0, 1)
    stream: Literal["stdout", "stderr"] = "stdout"
    timeout_s: float = 60.0


_PYTHON: Final = (".py", ".pyi")
_SCRIPT: Final = (".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")


def _python(name: str) -> tuple[str, ...]:
    return (f".venv/bin/{name}", f"venv/bin/{name}", name)


CHECKERS: Final = (
    Checker(
        name="ruff",
        suffixes=_PYTHON,
        programs=_python("ruff"),
        arguments=("check", "--output-format", "json", "--no-fix", "--force-exclude", "--no-cache"),
        stdin=("--stdin-filename", "{path}", "-"),
        parse=parsing.ruff,
        scope="file",
    ),
    Checker(
        name="pyright",
        suffixes=_PYTHON,
        programs=(*_python("pyright"), "node_modules/.bin/pyright"),
        arguments=("--outputjson",),
        parse=parsing.pyright,
        scope="project",
        timeout_s=120,
    ),
    Checker(
        name="mypy",
        suffixes=_PYTHON,
        programs=_python("mypy"),
        arguments=("--output", "json", "--no-error-summary", "--cache-dir", "/tmp/mypy"),
        parse=parsing.mypy,
        scope="project",
        markers=("mypy.ini", ".mypy.ini", "pyproject.toml#[tool.mypy", "setup.cfg#[mypy"),
        timeout_s=120,
    ),
    Checker(
        name="tsc",
        suffixes=_SCRIPT,
        programs=("node_modules/.bin/tsc", "tsc"),
        arguments=("--noEmit", "--pretty", "false", "--incremental", "false"),
        parse=parsing.tsc,
        scope="project",
        markers=("tsconfig.json",),
        takes_paths=False,
        worked=(0, 1, 2),
        timeout_s=120,
    ),
    Checker(
        name="eslint",
        suffixes=_SCRIPT,
        programs=("node_modules/.bin/eslint", "eslint"),
        arguments=("--format", "json", "--no-color"),
        stdin=("--stdin", "--stdin-filename", "{path}"),
        parse=parsing.eslint,
        scope="file",
        markers=(
            *(f"eslint.config.{kind}" for kind in ("js", "mjs", "cjs", "ts", "mts", "cts")),
            *(f".eslintrc{kind}" for kind in ("", ".js", ".cjs", ".json", ".yml", ".yaml")),
        ),
    ),
    Checker(
        name="go vet",
        suffixes=(".go",),
        programs=("go",),
        arguments=("vet", "./..."),
        parse=parsing.compiler,
        scope="project",
        markers=("go.mod", "go.work"),
        takes_paths=False,
        worked=(0, 1, 2),
        stream="stderr",
        timeout_s=120,
    ),
    Checker(
        name="cargo check",
        suffixes=(".rs",),
        programs=("cargo",),
        arguments=("check", "--message-format", "json", "--quiet", "--offline"),
        parse=parsing.cargo,
        scope="project",
        markers=("Cargo.toml",),
        takes_paths=False,
        worked=(0, 101),
        timeout_s=300,
    ),
    Checker(
        name="shellcheck",
        suffixes=(".sh", ".bash"),
        programs=("shellcheck",),
        arguments=("--format", "json"),
        parse=parsing.shellcheck,
        scope="file",
    ),
)
