"""What an editor knows that the disk does not: its context for the model, and its unsaved text."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from server.acp.connection import Connection, RpcError
from tools.errors import EnvironmentFault
from tools.workspace import Buffer

log = logging.getLogger(__name__)

MAX_BUFFERS, MAX_BUFFER = 64, 4 << 20
"""Unsaved files taken from one prompt, and characters of each."""
MAX_ITEMS, MAX_TEXT = 200, 100_000
"""Entries of one list of the context, and characters of one text in it."""
READ_S, WRITE_S = 2.0, 30.0
"""How long a client may take to say what it shows, and to write it."""


def editor_context(editor: Any) -> dict[str, Any] | None:
    """`_meta.etude.editor` of a prompt as the log keeps it.

    What does not have the expected shape is left out (the log is folded for ever), and so is the text of
    unsaved files: that is for the tools.
    """
    if not isinstance(editor, dict):
        return None
    context = {key: kept for key, keep in _SHAPES.items() if (kept := keep(editor.get(key)))}
    return context or None


def _text(value: Any) -> str | None:
    return value[:4096] if isinstance(value, str) else None


def _place(value: Any) -> dict[str, Any] | None:
    return _flat(value) if isinstance(value, dict) else None


def _places(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [_flat(item) for item in items[:MAX_ITEMS] if isinstance(item, dict)]


def _files(value: Any) -> list[dict[str, Any]]:
    items = value[:MAX_ITEMS] if isinstance(value, list) else []
    named = [{"path": item} if isinstance(item, str) else item for item in items]
    return [
        {key: field for key, field in _flat(item).items() if key != "text"}
        for item in named
        if isinstance(item, dict) and isinstance(item.get("path"), str)
    ]


def _flat(item: dict[str, Any]) -> dict[str, Any]:
    """The plain fields of an object, bounded."""
    return {
        key: value[:MAX_TEXT] if isinstance(value, str) else value
        for key, value in item.items()
        if isinstance(value, str | int | float | bool)
    }


_SHAPES: dict[str, Callable[[Any], Any]] = {
    "activeFile": _text,
    "cursor": _place,
    "selection": _places,
    "openFiles": _files,
    "recentFiles": _files,
    "visibleRanges": _places,
    "diagnostics": _places,
}


class Editors:
    """Unsaved text of one session's files, and the client that holds it.

    `buffers` is the mapping that the session's workspace reads.
    """

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self._holders: dict[str, Connection] = {}

    def take(self, root: str, editor: Any, connection: Connection) -> None:
        """Replace what is known by what this prompt says: `openFiles: [{path, text, dirty, version}]`."""
        if not isinstance(editor, dict) or not isinstance(opened := editor.get("openFiles"), list):
            return
        self.leave(connection)
        for item in opened[:MAX_BUFFERS]:
            if not isinstance(item, dict) or not item.get("dirty"):
                continue
            path, text, version = relative(root, item.get("path")), item.get("text"), item.get("version")
            if path is not None and isinstance(text, str) and len(text) <= MAX_BUFFER:
                self.buffers[path] = Buffer(text, version if isinstance(version, int) else None)
                self._holders[path] = connection

    def leave(self, connection: Connection) -> None:
        """Forget what this client held."""
        for path in [path for path, holder in self._holders.items() if holder is connection]:
            del self._holders[path]
            self.buffers.pop(path, None)

    async def refresh(
        self, session_id: str, root: str, given: str, connections: Iterable[Connection]
    ) -> None:
        """Ask the clients that have `fs/read_text_file` for the text they show of a file.

        A client that cannot say (no such file, an error, no answer in time) changes nothing.
        """
        path = relative(root, given)
        try:
            if path is None or not (Path(root) / path).is_file():
                return
        except (
            OSError
        ) as error:  # a name that is too long, a folder that may not be entered: the tool says it
            log.debug("%s is not looked at: %s", given[:200], error)
            return
        params = {"sessionId": session_id, "path": _full(root, path)}
        for connection in connections:
            if not _can(connection, "readTextFile"):
                continue
            try:
                answer = await asyncio.wait_for(connection.request("fs/read_text_file", params), READ_S)
            except (RpcError, ConnectionError, TimeoutError) as error:
                log.debug("%s has no text of %s: %r", connection.name, path, error)
                continue
            text = answer.get("content") if isinstance(answer, dict) else None
            if isinstance(text, str) and len(text) <= MAX_BUFFER:
                self.buffers[path] = Buffer(text)
                self._holders[path] = connection
                return

    async def write_through(self, session_id: str, root: str, path: str, text: str) -> None:
        """Write a file through the client that holds unsaved text of it.

        Raises:
            EnvironmentFault: it cannot, or did not.
        """
        holder = self._holders.get(path)
        if holder is None or not _can(holder, "writeTextFile"):
            raise EnvironmentFault(
                f"{path} has unsaved changes in an editor that cannot be written through. "
                "Ask the user to save the file, then read it again."
            )
        params = {"sessionId": session_id, "path": _full(root, path), "content": text}
        try:
            await asyncio.wait_for(holder.request("fs/write_text_file", params), WRITE_S)
        except (RpcError, ConnectionError, TimeoutError) as error:
            raise EnvironmentFault(
                f"The editor did not write {path} ({error or 'no answer in time'}). Read it again first."
            ) from error
        self.buffers[path] = Buffer(text)


def relative(root: str, path: Any) -> str | None:
    """A path or `file:` URI of a client relative to the workspace; None if it lies outside."""
    if not isinstance(path, str) or not path:
        return None
    if path.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        path = unquote(urlsplit(path).path)
    parts = PurePosixPath(path)
    if ".." in parts.parts:
        return None
    if not parts.is_absolute():
        return parts.as_posix()
    try:
        return Path(parts).relative_to(root).as_posix()
    except ValueError:
        return None


def _full(root: str, path: str) -> str:
    return str(PurePosixPath(root) / path)


def _can(connection: Connection, what: str) -> bool:
    files = connection.capabilities.get("fs")
    return isinstance(files, dict) and files.get(what) is True and not connection.closed
