"""What in a repository's own files makes git start a program or read its settings elsewhere."""

import re
from collections.abc import Iterator
from typing import Final

_HEADER: Final = re.compile(rb'\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]\s*')
_KEY: Final = re.compile(rb"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?", re.DOTALL)
_SHOWN: Final = 120
_SETTINGS: Final = 10_000

_RUNS: Final = re.compile(
    r"core\.(?:fsmonitor|hookspath|sshcommand|pager|editor|askpass|gitproxy|alternaterefscommand)"
    r"|core\.attributesfile|sequence\.editor|pager\..+|interactive\.difffilter|gc\.recentobjectshook|receive\.procreceiverefs"
    r"|filter\..+\.(?:clean|smudge|process)|diff\.external|diff\..+\.(?:command|textconv)|merge\..+\.driver"
    r"|(?:mergetool|difftool|browser|man|guitool)\..+\.(?:cmd|path)|trailer\..+\.(?:cmd|command)"
    r"|credential\.(?:.+\.)?helper|include\.path|includeif\..+\.path|gpg\.(?:.+\.)?program"
    r"|gpg\.ssh\.defaultkeycommand|url\..+\.(?:insteadof|pushinsteadof)"
    r"|remote\..+\.(?:uploadpack|receivepack|vcs)|uploadpack\.packobjectshook|protocol\.(?:.+\.)?allow"
    r"|sendemail\.(?:.+\.)?(?:sendmailcmd|tocmd|cccmd|headercmd|smtpserver)|imap\.tunnel|instaweb\.httpd"
    r"|hook\..+\.command|tar\..+\.command|lfs\.(?:customtransfer|extension)\..+",
    re.DOTALL,
)
"""Settings (section.subsection.name, lower-case) whose value git runs, follows or lets decide that."""
_SWITCHES: Final = frozenset({"", "true", "false", "yes", "no", "on", "off", "0", "1"})
_DRIVERS: Final = re.compile(rb"(?:^|\s)(?:filter|diff|merge)=(?!text\b|binary\b|union\b)\S+")


def settings(data: bytes) -> Iterator[tuple[str, str]]:
    """(`section.subsection.name` in lower case, value) of a git configuration, as git itself reads it."""
    lines = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\\\n", b" ").split(b"\n")
    section = ""
    for line in lines[:_SETTINGS]:
        rest = line.strip()
        while (header := _HEADER.match(rest)) is not None:
            name = header[1].decode("ascii").lower()
            below = re.sub(rb"\\(.)", rb"\1", header[2]) if header[2] is not None else None
            section = name if below is None else f"{name}.{below.decode('utf-8', 'replace').lower()}"
            rest = rest[header.end() :]
        if not rest or rest[:1] in b"#;":
            continue
        found = _KEY.match(rest)
        if found is not None and section:
            value = (found[2] or b"").strip().decode("utf-8", "replace")
            yield f"{section}.{found[1].decode('ascii').lower()}", value.replace('"', "")


def in_configuration(data: bytes) -> list[str]:
    """The settings of a `config` that make git run something, as `name = value`, cut to be shown."""
    return [_shown(name, value) for name, value in settings(data) if _runs(name, value)]


def in_attributes(data: bytes) -> list[str]:
    """Drivers that `info/attributes` attaches to files: they run if any configuration defines them."""
    found = dict.fromkeys(
        match.group().strip().decode("utf-8", "replace") for match in _DRIVERS.finditer(data)
    )
    return [f"info/attributes attaches {text[:_SHOWN]}" for text in found][:5]


def _runs(name: str, value: str) -> bool:
    if name.startswith("alias."):
        return value.startswith("!")
    if name.startswith("submodule."):
        return name.endswith(".update") and value.startswith("!")
    if name.startswith("remote.") and name.endswith("url"):
        return value.startswith("ext::")
    return _RUNS.fullmatch(name) is not None and value.lower() not in _SWITCHES


def _shown(name: str, value: str) -> str:
    text = f"{name} = {value}"
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable if len(printable) <= _SHOWN else printable[: _SHOWN - 1] + "…"
