"""Who may come in: tokens, one-time codes, and the gate before every request."""

import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from server.private import write_private

LOCAL_USER = "local"
CODE_LIFE_S = 600.0
MAX_CODES = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class TokenError(Exception):
    """A token cannot be made or removed. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class NamedToken:
    """A token as it is kept: its hash only."""

    name: str
    user_id: str
    hash: str
    created: int
    """Seconds UTC."""


class Tokens:
    """The tokens that open this server: its own (the local user's) and the named ones in a file.

    The file is read again when it has changed, so `etude token add` needs no restart.
    """

    def __init__(self, path: Path, own: str | None = None) -> None:
        self.path = path
        self._own = _hash(own) if own else None
        self._named: list[NamedToken] = []
        self._stamp: tuple[int, int] | None = None

    @classmethod
    def load(cls, path: Path, own: str | None = None) -> "Tokens":
        """Raises `TokenError` if the file is not what we wrote."""
        tokens = cls(path, own)
        tokens._refresh()
        return tokens

    def list(self) -> list[NamedToken]:
        self._refresh()
        return [*self._named]

    def add(self, name: str, user_id: str | None = None) -> str:
        """Make a named token and return it; it cannot be shown again."""
        if not _NAME.fullmatch(name):
            raise TokenError(f"{name!r} is no name for a token: use letters, digits and . _ @ -")
        self._refresh()
        if any(token.name == name for token in self._named):
            raise TokenError(f"there is a token named {name} already: remove it first or choose another name")
        token = secrets.token_urlsafe(32)
        entry = NamedToken(name, user_id or name, _hash(token), int(time.time()))
        self._write([*self._named, entry])
        return token

    def remove(self, name: str) -> None:
        self._refresh()
        rest = [token for token in self._named if token.name != name]
        if len(rest) == len(self._named):
            raise TokenError(f"there is no token named {name}")
        self._write(rest)

    def verify(self, token: str) -> str | None:
        """The user a token belongs to. Takes the same time whatever is wrong with it."""
        self._refresh()
        given, user = _hash(token), None
        for hash, owner in [(self._own, LOCAL_USER), *((item.hash, item.user_id) for item in self._named)]:
            if hash is not None and hmac.compare_digest(given, hash):
                user = owner
        return user

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._named, self._stamp = [], None
            return
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        try:
            entries = orjson.loads(self.path.read_bytes())["tokens"]
            self._named = [NamedToken(**entry) for entry in entries]
        except (ValueError, KeyError, TypeError) as error:
            raise TokenError(f"{self.path} is not a token file ({error}): restore or delete it") from error
        self._stamp = stamp

    def _write(self, tokens: Iterable[NamedToken]) -> None:
        write_private(self.path, orjson.dumps({"tokens": [asdict(token) for token in tokens]}))
        self._stamp = None
        self._refresh()


def own_token(path: Path) -> str:
    """The local user's token, made once (mode 0600): a page that is open survives a restart of the server.

    Whoever can read the file could read the database beside it as well. Deleting it locks every page out.
    """
    try:
        if token := path.read_text("ascii").strip():
            return token
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    token = secrets.token_urlsafe(32)
    write_private(path, f"{token}\n".encode())
    return token


class Codes:
    """One-time codes: each stands for a bearer token for ten minutes, and for one trade."""

    def __init__(self) -> None:
        self._codes: dict[str, tuple[str, float]] = {}

    def mint(self, token: str) -> str:
        now = time.monotonic()
        self._codes = {code: entry for code, entry in self._codes.items() if entry[1] > now}
        while len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[code] = (token, now + CODE_LIFE_S)
        return code

    def trade(self, code: str) -> str | None:
        """The token, once; None for a code that is unknown, used or too old."""
        token, expires = self._codes.pop(code, (None, 0.0))
        return token if time.monotonic() < expires else None


class Gate:
    """Whether a request may be looked at: from where it comes, and by what name it calls us.

    A page of another origin can open a WebSocket to loopback, and a name that resolves to loopback can
    make itself our origin; both say so in their headers.
    """

    def __init__(self, origins: Iterable[str] = (), hosts: Iterable[str] = ()) -> None:
        self.origins = {origin.rstrip("/").lower() for origin in origins}
        self.hosts = {host.lower() for host in hosts}

    def refuse(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Why the request is refused (403), or None."""
        host, origins, hosts = "", [], 0
        for name, value in headers:
            if name == b"host":
                host, hosts = value.decode("latin-1").lower(), hosts + 1
            elif name == b"origin":
                origins.append(value.decode("latin-1").lower())
        if hosts != 1 or not self._known(host):
            return f"unknown host {host[:100]!r}: use localhost, or add the name to server.allowed_hosts"
        if len(origins) > 1:
            return "more than one Origin header"
        if origins and not self._trusted(origins[0], host):
            return f"origin {origins[0][:100]!r} may not connect: add it to server.allowed_origins"
        return None

    def _known(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        if name == "localhost" or name in self.hosts or host in self.hosts:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def _trusted(self, origin: str, host: str) -> bool:
        if origin in self.origins or origin in (f"http://{host}", f"https://{host}"):
            return True
        return re.fullmatch(r"vscode-webview://[a-z0-9.-]+", origin) is not None


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token of an `Authorization: Bearer T` header."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return token.strip()
    return None


def _host_name(host: str) -> str | None:
    """The name of a Host header without its port; None if it is none."""
    matched = re.fullmatch(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?", host)
    return matched.group(1).strip("[]").rstrip(".") if matched else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
