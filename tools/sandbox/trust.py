"""Certificate authorities that the server's environment names, for commands: a company's own, mostly.

What is not shown inside anyway is copied, only its certificates, and the variable passed on. What a sandbox
shows is thus what was looked at; a file changed later is seen by the next sandbox.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FOLDER: Final = "trust"
"""Below the control folder; everything in it can be read by anyone who reaches it."""

VARIABLES: Final = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_PROXY_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE", "CARGO_HTTP_CAINFO", "CARGO_HTTP_PROXY_CAINFO", "DENO_CERT", "NPM_CONFIG_CAFILE",
    "npm_config_cafile", "YARN_HTTPS_CA_FILE_PATH", "BUNDLE_SSL_CA_CERT", "COMPOSER_CAFILE",
    "HEX_CACERTS_PATH", "PERL_LWP_SSL_CA_FILE", "PERL_LWP_SSL_CA_PATH", "HTTPLIB2_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
)  # fmt: skip
"""A file or a folder each; `SSL_CERT_DIR` is a list of folders."""

SWITCHES: Final = (
    "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "NODE_USE_SYSTEM_CA", "DENO_TLS_CA_STORE",
)  # fmt: skip
"""They choose among what programs have and what the system has."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9,]{1,32}")
_BLOCK: Final = re.compile(
    rb"-----BEGIN ((?:TRUSTED |X509 )?CERTIFICATE|X509 CRL)-----\s[A-Za-z0-9+/=\s]+-----END \1-----"
)
_KEY: Final = re.compile(rb"PRIVATE KEY", re.IGNORECASE)
_BYTES: Final = 8 << 20
_ENTRIES: Final = 2048


class Refused(ValueError):
    """Why a file or folder is not shown, in words that follow its path."""


@dataclass(slots=True)
class Trust:
    """`environment` is what commands are told; `binds` are (place below the control folder, where it is seen
    too) for a tier that can; `notices` name what was left out."""

    environment: dict[str, str] = field(default_factory=dict)
    binds: list[tuple[str, Path]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def bring(
    run: Path,
    inside: str,
    root: Path,
    visible: Iterable[Path],
    environment: Mapping[str, str],
    placeable: Callable[[Path], bool],
) -> Trust:
    """Copy what the environment names to `run`, which commands see as `inside`.

    `visible` are the folders commands see under their own paths, `root` the workspace; a file in one of them
    is named, not copied. `placeable`: whether the copy of a file can be seen under the file's own path, too.
    """
    bringing = _Bringing(run, inside, root, tuple(visible), placeable)
    for name in VARIABLES:
        value = environment.get(name, "")
        texts = value.split(os.pathsep) if name == "SSL_CERT_DIR" else [value]
        if found := [place for text in texts if text and (place := bringing.place(name, text))]:
            bringing.trust.environment[name] = os.pathsep.join(found)
    for name in SWITCHES:
        if _PLAIN.fullmatch(value := environment.get(name, "")):
            bringing.trust.environment[name] = value
    return bringing.trust


class _Bringing:
    def __init__(
        self,
        run: Path,
        inside: str,
        root: Path,
        visible: tuple[Path, ...],
        placeable: Callable[[Path], bool],
    ) -> None:
        self.trust = Trust()
        self._run = run
        self._inside = inside
        self._root = root
        self._visible = visible
        self._placeable = placeable
        self._places: dict[str, str | None] = {}

    def place(self, name: str, text: str) -> str | None:
        """Where commands find it; None where it is left out, which is told once for all its variables."""
        if text not in self._places:
            try:
                self._places[text] = self._placed(text)
            except (OSError, Refused) as error:
                why = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
                self.trust.notices.append(f"{text}, which {name} names, {why}: commands do without it.")
                self._places[text] = None
        return self._places[text]

    def _placed(self, text: str) -> str:
        if not os.path.isabs(text):
            raise Refused("is no absolute path")
        literal, path = Path(os.path.normpath(text)), Path(os.path.realpath(text))
        # What the workspace links to is the agent's choice; it sees as much of it as it did.
        if self._shown(literal, (self._root,)) or (self._shown(literal) and self._shown(path)):
            return text
        if self._shown(path, (self._root, *self._visible)):
            return str(path)
        number = sum(place is not None for place in self._places.values())
        relative = f"{FOLDER}/{number}"
        target = self._run / relative
        if path.is_dir():
            self._copy_folder(path, target)
        else:
            write(target, certificates(contents(path)))
            if self._placeable(path):
                self.trust.binds.append((relative, path))
                return str(path)
        return f"{self._inside}/{relative}"

    def _shown(self, path: Path, folders: tuple[Path, ...] = ()) -> bool:
        return any(path.is_relative_to(folder) for folder in folders or self._visible)

    def _copy_folder(self, path: Path, target: Path) -> None:
        names = sorted(os.listdir(path))
        if len(names) > _ENTRIES:
            raise Refused(f"has more than {_ENTRIES:,} entries")
        found: dict[str, bytes] = {}
        left, keys = _BYTES, list[str]()
        for name in names:
            try:
                content = contents(path / name, left)
                found[name] = certificates(content)
            except HoldsKey:
                keys.append(name)
                continue
            except (OSError, Refused):  # folders, notes, what others may not read: no certificates
                continue
            left -= len(content)
        if not found:
            raise HoldsKey if keys else Refused("holds no certificates")
        for name, content in found.items():
            write(target / name, content)
        if keys:
            listed = ", ".join(keys[:3]) + (" and others" if len(keys) > 3 else "")
            self.trust.notices.append(
                f"Not shown to commands, since it holds a private key: {path}/{listed}."
            )


class HoldsKey(Refused):
    def __init__(self) -> None:
        super().__init__("holds a private key")


def contents(path: Path, limit: int = _BYTES) -> bytes:
    """Raises: OSError, or Refused: it is no file, or larger than `limit` bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused("is neither a file nor a folder")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Refused("is too large")
    return content


def certificates(content: bytes) -> bytes:
    """The certificates in it, without what stands between them.

    Raises:
        Refused: there is none, or a private key among them.
    """
    if _KEY.search(content):
        raise HoldsKey
    blocks = [match.group() for match in _BLOCK.finditer(content)]
    if not blocks:
        raise Refused("holds no certificates")
    return b"\n".join(blocks) + b"\n"


def write(target: Path, content: bytes) -> None:
    """A copy that the user of the commands can read, whoever that is."""
    for folder in [parent for parent in reversed(target.parents) if not parent.exists()]:
        folder.mkdir()
        folder.chmod(0o755)
    target.write_bytes(content)
    target.chmod(0o644)
