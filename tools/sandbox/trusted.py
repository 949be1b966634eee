"""What commands are shown of the machine's certificate authorities and of pip's settings, in each tier."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tools.sandbox import pip_settings, trust
from tools.sandbox.policy import Tier
from tools.sandbox.toolchains import SYSTEM, Toolchains

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Trusted:
    """`environment` is what commands are told. `binds` are (copy below the control folder, where bubblewrap
    shows it too); `in_home` are (copy, path relative to the home) and `of_system` files, both for Landlock.
    `notices` name what is left out."""

    environment: dict[str, str] = field(default_factory=dict)
    binds: list[tuple[str, Path]] = field(default_factory=list)
    in_home: list[tuple[str, Path]] = field(default_factory=list)
    of_system: list[Path] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def bring(
    tier: Tier,
    run: Path,
    inside: str,
    root: Path,
    toolchains: Toolchains,
    etc: Sequence[str],
    environment: Mapping[str, str] = os.environ,
) -> Trusted:
    """Copy what commands are to see to the control folder `run`, which they see as
    `inside`. `etc` is what is shown of /etc anyway."""
    if tier == "none":  # everything is where it is
        names = (*trust.VARIABLES, *trust.SWITCHES, "PIP_CONFIG_FILE")
        return Trusted({name: environment[name] for name in names if environment.get(name)})
    home = toolchains.homes[0] if toolchains.homes else Path("/nonexistent")
    pip = pip_settings.bring(run, inside, home, environment)
    given = {"PIP_CERT": pip.cert, **environment} if pip.cert else environment
    open_roots = [path for path in toolchains.roots if not _around(path, toolchains.covered)]
    visible = (*SYSTEM, *(Path("/etc", name) for name in etc), *open_roots)

    def placeable(path: Path) -> bool:
        return tier == "bubblewrap" and _placeable(path, toolchains)

    found = trust.bring(run, inside, root, visible, given, placeable)
    trusted = Trusted({**found.environment, **pip.environment}, notices=[*found.notices, *pip.notices])
    trusted.binds = found.binds
    for relative, seen in pip.files:
        if seen.is_absolute():
            trusted.of_system.append(seen)
        else:
            trusted.in_home.append((relative, seen))
        if placeable(home / seen):
            trusted.binds.append((relative, home / seen))
    for notice in trusted.notices:
        _warn_once(notice)
    return trusted


def _around(path: Path, covered: Sequence[Path]) -> bool:
    return any(other.is_relative_to(path) for other in covered)


def _placeable(path: Path, toolchains: Toolchains) -> bool:
    """Whether bubblewrap can make a place for it: nothing can be made in a folder shown read-only."""
    if path.is_relative_to("/proc") or path.is_relative_to("/dev"):
        return False
    if any(path.is_relative_to(folder) for folder in toolchains.covered if folder.is_dir()):
        return os.path.realpath(path.parent) == str(path.parent)
    return not any(path.is_relative_to(root) for root in toolchains.roots)


@cache
def _warn_once(notice: str) -> None:
    log.warning("%s", notice.encode("utf-8", "backslashreplace").decode())
