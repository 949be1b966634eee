"""The user's and the system's `pip.conf`, for commands: where a company's package index is.

They are shown only without credentials, as copies without their comments; what a sandbox shows is thus what
was looked at.
"""

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.sandbox.trust import FOLDER, Refused, contents, write

_BYTES: Final = 256 << 10
SYSTEM: Final = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
_SECRET_NAME: Final = re.compile(r"passw|secret|token|api.?key|credential|auth|username", re.IGNORECASE)
_SECRET_VALUE: Final = re.compile(
    r"@"  # an address with a user in it, with or without its scheme
    r"|[?&][\w.-]*(?:key|token|sig|auth|pass|secret|credential)[\w.-]*="
    r"|/(?=[A-Za-z_]*[0-9])(?=[0-9_]*[A-Za-z])[A-Za-z0-9_]{16,}(?:/|\s|$)",  # as some indexes have it
    re.IGNORECASE,
)


@dataclass(slots=True)
class PipSettings:
    """`files` are (place below the control folder, path of a system's, or relative to the home);
    `cert` is the certificates' file that one of them names."""

    files: list[tuple[str, Path]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    cert: str | None = None


def bring(run: Path, inside: str, home: Path, environment: Mapping[str, str]) -> PipSettings:
    """Copy the settings to `run`, which commands see as `inside`, except those that hold a credential."""
    found = PipSettings()
    configured = environment.get("XDG_CONFIG_HOME", "")
    own = Path(configured) if os.path.isabs(configured) else home / ".config"
    places = [(path, path) for path in SYSTEM]
    places += [(home / ".pip/pip.conf", Path(".pip/pip.conf"))]
    places += [(own / "pip/pip.conf", Path(".config/pip/pip.conf"))]
    named = environment.get("PIP_CONFIG_FILE", "")
    tried: list[tuple[Path, Path | None]] = [*places, *([(Path(named), None)] if named else [])]
    for number, (path, seen) in enumerate(tried):
        if named == os.devnull:  # pip then reads no file at all
            found.environment["PIP_CONFIG_FILE"] = named
            break
        try:
            parser = _parsed(contents(path, _BYTES))
        except OSError:  # there is none
            continue
        except Refused as error:
            found.notices.append(f"{path} {error}: commands do without it.")
            continue
        text = _written(parser)
        relative = f"{FOLDER}/pip{number}.conf"
        write(run / relative, text.encode())
        found.cert = parser.get("global", "cert", fallback=found.cert)
        if seen is None:
            found.environment["PIP_CONFIG_FILE"] = f"{inside}/{relative}"
        else:
            found.files.append((relative, seen))
    return found


def _parsed(content: bytes) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(content.decode())
    except (configparser.Error, UnicodeDecodeError):
        raise Refused("cannot be understood") from None
    sections = {name: dict(parser.items(name)) for name in parser.sections()}
    for name, value in [
        pair for section in (parser.defaults(), *sections.values()) for pair in section.items()
    ]:
        if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
            raise Refused("seems to hold a credential")
    return parser


def _written(parser: configparser.RawConfigParser) -> str:
    lines: list[str] = []
    for section in parser.sections():
        lines.append(f"[{section}]")
        lines += [f"{name} = {value}".replace("\n", "\n\t") for name, value in parser.items(section)]
    return "\n".join(lines) + "\n"
