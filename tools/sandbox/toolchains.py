"""Which folders outside the workspace its commands may read: interpreters, compilers, package tools.

They come from the user's own `PATH`, from a list of known places in the home, and from the policy's
`read`; never from anything inside the workspace, which the agent can write. Credentials that lie in such
a folder are covered.
"""

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SYSTEM: Final = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")))
"""Readable in every sandbox; nothing below them needs a mount of its own."""

KNOWN: Final = (
    ".asdf", ".bun", ".cabal", ".cargo", ".cache/pypoetry/virtualenvs", ".choosenim", ".conda", ".deno",
    ".dotnet", ".elan", ".fnm", ".gem", ".ghcup", ".goenv", ".jabba", ".jenv", ".juliaup", ".local/bin",
    ".local/lib", ".local/share/fnm", ".local/share/gem", ".local/share/hatch/env",
    ".local/share/mise/installs", ".local/share/mise/shims", ".local/share/pipx", ".local/share/pnpm",
    ".local/share/rtx", ".local/share/uv", ".local/share/virtualenvs", ".mambaforge", ".moon", ".n",
    ".nimble", ".nix-profile", ".nodenv", ".npm-global", ".nvm", ".opam", ".phpbrew", ".pixi", ".proto",
    ".pyenv", ".pyenv-win", ".rbenv", ".rustup", ".rvm", ".rye", ".sdkman", ".swiftly", ".virtualenvs",
    ".volta", ".yarn/bin", ".yarn/releases", "anaconda3", "go/bin", "go/pkg", "mambaforge", "micromamba",
    "miniconda3", "miniforge3",
)  # fmt: skip

CREDENTIALS: Final = (
    ".aws", ".azure", ".bash_history", ".boto", ".bun/install/global/.npmrc", ".cargo/credentials",
    ".cargo/credentials.toml", ".claude", ".claude.json", ".codex", ".composer/auth.json", ".conda/.condarc",
    ".condarc", ".config/Code", ".config/composer/auth.json", ".config/containers", ".config/doctl",
    ".config/gcloud", ".config/gh", ".config/git/credentials", ".config/glab-cli", ".config/google-chrome",
    ".config/chromium", ".config/configstore", ".config/hub", ".config/op", ".config/pip", ".config/rclone",
    ".config/sops", ".config/uv", ".docker", ".dotnet/.nuget", ".env", ".fly", ".gem/credentials",
    ".git-credentials", ".gnupg", ".gradle/gradle.properties", ".heroku", ".kaggle", ".kube",
    ".local/share/gem/credentials", ".local/share/keyrings", ".local/share/uv/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml", ".mozilla", ".mysql_history", ".netrc", ".node_repl_history",
    ".npm-global/etc/npmrc", ".npmrc", ".nuget/NuGet/NuGet.Config", ".password-store", ".pgpass", ".pip",
    ".psql_history", ".pulumi", ".pypirc", ".python_history", ".rye/config.toml", ".ssh", ".subversion/auth",
    ".terraform.d", ".vault-token", ".wget-hsts", ".yarnrc.yml", ".zsh_history", "Library/Keychains",
)  # fmt: skip
"""Relative to the home; whatever exposes a folder around one of them, it stays covered."""

_SHARED: Final = frozenset({".local", ".config", ".cache", ".ssh", ".gnupg", "Library", "snap"})
"""Folders of a home where a `bin` says nothing about its siblings."""

_INSTALLED: Final = ("lib", "lib64", "libexec", "pkg", "conda-meta", "pyvenv.cfg")
"""What lies beside `bin` in a folder that holds one installed tool."""


@dataclass(frozen=True, slots=True)
class Toolchains:
    """`roots` are absolute existing folders, none inside another; `covered` exist inside them;
    `path` is the user's PATH without what cannot be seen from inside."""

    homes: tuple[Path, ...]
    roots: tuple[Path, ...]
    covered: tuple[Path, ...]
    path: str


def homes(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The home the environment names and the one of the account, where they are real folders."""
    found: list[Path] = []
    named = environment.get("HOME", "")
    try:
        account = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        account = ""
    for text in (named, account):
        path = Path(os.path.realpath(text)) if text.startswith("/") else None
        if path and path != Path("/") and path.is_dir() and path not in found:
            found.append(path)
    return tuple(found)


def discover(
    workspace: Path, read: Iterable[Path] = (), environment: Mapping[str, str] = os.environ
) -> Toolchains:
    """The read-only folders for one workspace.

    A folder that contains the workspace or a home is never a root: it would expose more than a tool.
    """
    places = homes(environment)
    wanted: list[Path] = [place / name for place in places for name in KNOWN]
    entries = [Path(text) for text in environment.get("PATH", "").split(os.pathsep) if text.startswith("/")]
    for entry in entries:
        folder = Path(os.path.realpath(entry))
        if not _within(folder, (workspace,)) and not _within(Path(entry), (workspace,)):
            wanted += _of_path_entry(folder, places)
    wanted += [Path(os.path.realpath(path.expanduser())) for path in read]
    barred = (workspace, *places)
    demanded = {Path(os.path.realpath(path.expanduser())) for path in read}
    roots = _outermost(
        path
        for path in dict.fromkeys(wanted)
        if path.exists()
        and not _within(path, SYSTEM)
        and not _within(path, (workspace,))
        and (path in demanded or not any(_within(inner, (path,)) for inner in barred))
        and path != Path("/")
    )
    secrets = [place / name for place in places for name in CREDENTIALS]
    covered = _outermost(path for path in secrets if _within(path, roots) and os.path.lexists(path))
    roots = tuple(root for root in roots if not _within(root, tuple(secrets)))
    visible = (*SYSTEM, *roots, workspace)
    kept = [str(entry) for entry in entries if _within(Path(os.path.realpath(entry)), visible)]
    standard = ["/usr/local/bin", "/usr/bin", "/bin"]
    path = os.pathsep.join(dict.fromkeys([*kept, *standard]))
    return Toolchains(homes=places, roots=roots, covered=covered, path=path)


def _of_path_entry(entry: Path, places: tuple[Path, ...]) -> list[Path]:
    """A folder of PATH, and what its programs need around it."""
    if _within(entry, SYSTEM):
        return []
    found = [entry]
    if entry.name in ("bin", "sbin", "shims", ".bin"):
        parent = entry.parent
        inside_home = any(place == parent or parent.name in _SHARED for place in places)
        if not inside_home and any((parent / name).exists() for name in _INSTALLED):
            found.append(parent)
    return found + _link_targets(entry, places)


def _link_targets(folder: Path, places: tuple[Path, ...]) -> list[Path]:
    """Installations in a home that links of a PATH folder point into (`bin/tool -> ../opt/x/bin/tool`)."""
    found: set[Path] = set()
    try:
        with os.scandir(folder) as entries:
            links = [entry.path for entry in entries if entry.is_symlink()][:512]
    except OSError:  # unreadable or gone: then nothing in it can be run either
        return []
    for link in links:
        target = Path(os.path.realpath(link))
        if target.parent == folder or not _within(target, places):
            continue
        home = target.parent.parent
        installed = target.parent.name == "bin" and any((home / name).exists() for name in _INSTALLED)
        if installed and home not in places and home.name not in _SHARED:
            found.add(home)
    return sorted(found)


def _within(path: Path, roots: Iterable[Path]) -> bool:
    return any(path == root or root in path.parents for root in roots)


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not _within(path, kept):
            kept.append(path)
    return tuple(sorted(kept))
