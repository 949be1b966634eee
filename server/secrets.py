"""The secrets a server itself knows, the key that makes placeholders last, and logs without either."""

import logging
import secrets
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.events import Event
from server.private import write_private
from tools.mcp import McpSpec
from tools.redaction import Redactor, environment_secrets

if TYPE_CHECKING:
    from server.settings import Settings

KEY_FILE: Final = "redaction.key"
KEY_BYTES: Final = 32
USUAL_KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN")


class KeyFileError(Exception):
    """The key of the placeholders cannot be read or made. The message says what to do."""


class Secrets:
    """What no session may show, and the redactors of all sessions."""

    def __init__(self, settings: "Settings", folder: Path) -> None:
        named = [model.api_key_env for model in settings.models.values() if model.api_key_env]
        servers = [server.token_env for server in settings.mcp.values() if server.token_env]
        self._known = environment_secrets(settings.environ, (*USUAL_KEYS, *named, *servers))
        self._file = folder / KEY_FILE
        self._redactors: weakref.WeakSet[Redactor] = weakref.WeakSet()
        self._own = self._new(None, "")

    def know(self, value: str, kind: str = "token") -> None:
        """One more value that no session may show."""
        self._known[value] = kind
        for redactor in (self._own, *tuple(self._redactors)):
            redactor.know(value, kind)

    def redactor(self, events: Sequence[Event], servers: Iterable[McpSpec] = ()) -> Redactor:
        """The redactor of a session; a fork shares its placeholders with the session it came from. Blocks.

        Raises:
            KeyFileError: there is no key.
        """
        first = events[0]  # of the first session, for a fork: the events before it are its own, too
        redactor = self._new(placeholder_key(self._file), f"{first.ts} {first.data.get('workspace', '')}")
        for server in servers:
            for value in (*server.env.values(), *server.headers.values()):
                if value in environment_secrets({"TOKEN": value}):
                    redactor.know(value.removeprefix("Bearer "), "token")
        return redactor

    def clean(self, text: str) -> str:
        """Text for a log of the server, or for whoever gets an error of it."""
        text = self._own.redact(text)
        for redactor in tuple(self._redactors):
            text = redactor.conceal(text)
        return text

    def clean_value(self, value: Any) -> Any:
        """The same for every string in a JSON-like value."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, dict):
            return {self.clean(str(key)): self.clean_value(item) for key, item in value.items()}
        return [self.clean_value(item) for item in value] if isinstance(value, (list, tuple)) else value

    def guard(self, handlers: Iterable[logging.Handler]) -> None:
        """Write nothing to these handlers that was not cleaned."""
        for handler in handlers:
            handler.setFormatter(_Clean(handler.formatter or logging.Formatter(), self))

    def _new(self, key: bytes | None, salt: str) -> Redactor:
        redactor = Redactor(key, salt, self._known)
        if key is not None:
            self._redactors.add(redactor)
        return redactor


class _Clean(logging.Formatter):
    def __init__(self, inner: logging.Formatter, known: Secrets) -> None:
        super().__init__()
        self._inner, self._known = inner, known

    def format(self, record: logging.LogRecord) -> str:
        return self._known.clean(self._inner.format(record))


def placeholder_key(path: Path) -> bytes:
    """The key from which placeholders are made: random, made once, mode 0600, beside the database.

    Without it placeholders of earlier turns stand for nothing; no secret can be had from it.

    Raises:
        KeyFileError: it cannot be read or written.
    """
    try:
        if len(key := _read(path)) == KEY_BYTES:
            return key
        if not key and path.exists() and not _read(path):
            path.unlink()  # an empty one, which nobody can have used
        # Whoever comes first makes it: what another server has begun to use is never replaced.
        write_private(path, secrets.token_bytes(KEY_BYTES), replace=False)
        key = _read(path)
    except OSError as error:
        raise KeyFileError(
            f"the key of the placeholders in {path} cannot be read or made ({error.strerror}): make that "
            "file readable for this user only, or remove it"
        ) from error
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"{path} does not hold {KEY_BYTES} bytes: remove it, and a new one is made")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
