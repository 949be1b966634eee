"""The one way of a session's texts to its log, its model and its clients: without their secrets.

What a tool, a user or an editor says is redacted before it becomes an event, and everything else is made from
events. What the model writes is kept as it is, token for token, but for values that are known to be secret.
"""

import asyncio
import logging
import time
from typing import Any, Final, TypeVar

import orjson

from agent.approval import Ask, Decision
from agent.events import ApprovalRequested, Call, Draft, Generation, Record
from tools.errors import InvalidArguments, ToolError
from tools.files import read_bytes
from tools.redaction import Guard, Redactor, Stream, UnknownPlaceholder, learn_workspace
from tools.tool import Tool
from tools.workspace import Workspace, content_hash

log = logging.getLogger(__name__)

RESOLVING: Final = frozenset(("edit", "write", "apply_patch"))
"""Tools whose arguments are given their true text."""
SAYING: Final = frozenset(("todo", "ask", "summarize"))
"""Tools whose arguments are words for people or for the model itself."""
_AS_WRITTEN: Final = frozenset(("text", "thought", "tool.output", "generation"))
"""Events that are clean already: their characters were redacted as they came."""
_TEXT_BLOBS: Final = frozenset(("workspace", "tool.result"))
_FROM_PEOPLE: Final = frozenset(("prompt", "queued", "steered"))
LARGE: Final = 32_768
"""Bytes of an event from which on it is redacted beside the event loop."""
RECALLED_FILES, RECALLED_BYTES = 200, 1 << 20
"""Files that are read to find the value of a placeholder from before a restart, and bytes of each."""
LEARN_EVERY_S: Final = 2.0

R = TypeVar("R", bound=Record)


class Redaction:
    """What stands between one session and everyone who is told of it."""

    def __init__(self, redactor: Redactor, workspace: Workspace) -> None:
        self.redactor, self.workspace = redactor, workspace
        self._files: dict[str, tuple[int, int]] = {}
        self._learned = float("-inf")

    # ---- what becomes events

    def draft(self, item: Draft) -> Draft:
        """An event without secrets. Its blobs are not looked at."""
        if item.type in _AS_WRITTEN:
            return item
        return item.model_copy(update={"data": self.redactor.redact_value(item.data)})

    def quick(self, item: Draft) -> bool:
        """Whether `draft` is enough and costs no more than a moment; otherwise it is for `prepared`."""
        if item.type in _AS_WRITTEN:
            return True
        texts = item.type in _TEXT_BLOBS and item.blobs
        return not texts and item.type not in _FROM_PEOPLE and _size(item.data) < LARGE

    async def prepared(self, item: Draft) -> Draft:
        """An event and its text blobs without secrets. People may quote the workspace's secret files."""
        if item.type in _FROM_PEOPLE:
            await self.learn()
        return await asyncio.to_thread(self._with_blobs, item)

    def record(self, record: R) -> R:
        """A record without secrets, for whoever is asked before it is an event."""
        return type(record).model_validate(self.redactor.redact_value(record.model_dump()))

    def asking(self, ask: Ask) -> Ask:
        """Questions to people, asked without secrets."""

        async def redacted(request: ApprovalRequested) -> Decision:
            return await ask(await asyncio.to_thread(self.record, request))

        return redacted

    async def text(self, text: str) -> str:
        """A text that will be cut: a secret is found only while it is whole."""
        return (
            self.redactor.redact(text)
            if len(text) < LARGE
            else await asyncio.to_thread(self.redactor.redact, text)
        )

    async def learn(self) -> None:
        """Know what the secret files of the workspace hold now."""
        if time.monotonic() - self._learned > LEARN_EVERY_S:
            self._learned = time.monotonic()
            await asyncio.to_thread(learn_workspace, self.redactor, self.workspace.root, self._files)

    def stream(self, kind: str) -> Stream | Guard:
        """What redacts characters as they come: of a tool's output, or of what the model writes."""
        return Stream(self.redactor) if kind == "tool.output" else Guard(self.redactor)

    def generation(self, generation: Generation) -> tuple[Generation, str | None]:
        """What the model wrote, without known secrets, and what to say where it held one.

        Its token trace is left out then: what was altered is no record of what was sampled.
        """
        parts = [generation.text, generation.thought, *(call.arguments for call in generation.calls)]
        if not any(map(self.redactor.holds, parts)):
            for call in generation.calls:
                self.redactor.own(call.arguments)
            return generation, None
        conceal = self.redactor.conceal
        calls = [
            Call.model_validate(call.model_dump() | {"arguments": conceal(call.arguments)})
            for call in generation.calls
        ]
        update = {
            "text": conceal(generation.text),
            "thought": conceal(generation.thought),
            "calls": calls,
            "tokens": None,
        }
        return generation.model_copy(update=update), (
            "The model wrote a value that is known to be secret, although it was never shown it whole. "
            "It was replaced in this answer, whose tokens are therefore not kept."
        )

    def _with_blobs(self, item: Draft) -> Draft:
        data, blobs = item.data, dict(item.blobs)
        if item.type in _TEXT_BLOBS:
            for name, content in item.blobs.items():
                clean = self.redactor.redact_bytes(content)
                if clean is not content:
                    del blobs[name]
                    blobs[content_hash(clean)] = clean
                    data = _renamed(data, name, content_hash(clean), len(clean))
        return self.draft(item.model_copy(update={"data": data, "blobs": blobs}))

    # ---- the way back

    async def arguments(self, tool: Tool, raw: str) -> str:
        """A call's arguments with placeholders replaced by what they stand for, where the tool may have it.

        Raises:
            InvalidArguments: a placeholder is not known, or this tool is never given a secret.
        """
        if "[secret:" not in raw or tool.name in SAYING:
            return raw
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return raw  # the tool says what is wrong with it
        if not (found := self.redactor.placeholders(value)):
            return raw
        if tool.name not in RESOLVING:
            raise InvalidArguments(_never(tool, sorted(found)[0]))
        paths = [path for path in _paths(value) if isinstance(path, str)]
        if self.redactor.unknown(value):
            await self.learn()
            await asyncio.to_thread(self._recall, [*paths, *self.workspace.seen], value)
        known = await asyncio.to_thread(self._literal, paths) if self.redactor.unknown(value) else ""
        try:
            resolved = self.redactor.resolve(value, lambda placeholder: placeholder in known)
        except UnknownPlaceholder as error:
            raise InvalidArguments(
                f"{error.placeholder} is no placeholder of this session, so nothing was changed. Copy one "
                "exactly as you were shown it, or read the file that holds the secret again. A new secret is "
                "for the user to put in."
            ) from error
        return orjson.dumps(resolved, option=orjson.OPT_PASSTHROUGH_SUBCLASS).decode()

    def _recall(self, paths: list[str], value: Any) -> None:
        """Meet again the secrets of files that the model has seen, until all placeholders are known."""
        for path in list(dict.fromkeys(paths))[:RECALLED_FILES]:
            for content in self._contents(path):
                self.redactor.redact_bytes(content)
            if not self.redactor.unknown(value):
                return

    def _literal(self, paths: list[str]) -> str:
        """The true text of files: what looks like a placeholder there is one of their own words."""
        return "\n".join(
            content.decode("utf-8", "replace") for path in paths for content in self._contents(path)
        )

    def _contents(self, path: str) -> list[bytes]:
        found: list[bytes] = []
        if (buffer := self.workspace.buffers.get(path)) is not None:
            found.append(buffer.text.encode("utf-8", "replace"))
        try:
            found.append(read_bytes(self.workspace.root, path, RECALLED_BYTES)[0])
        except (ToolError, OSError):
            log.debug("no content of %s to look for placeholders in", path)
        return found


def _never(tool: Tool, placeholder: str) -> str:
    if tool.kind == "execute":
        return (
            f"{placeholder} stands for a secret that commands are never given, so this was not run. "
            "Let the command read the secret itself, from the file or variable that holds it."
        )
    return (
        f"{placeholder} stands for a secret, and {tool.name} works with true text, where it is not to be "
        "found. Name something else: a part of the line without the secret, or a pattern of the path. "
        f"Only {', '.join(sorted(RESOLVING))} put secrets back."
    )


def _paths(value: Any) -> list[Any]:
    """The files that arguments name: a path, or the headers of a patch."""
    if not isinstance(value, dict):
        return []
    patch = value.get("patch")
    named = (
        [
            line.split(":", 1)[1].strip()
            for line in patch.split("\n")
            if line.startswith("*** ") and ":" in line
        ]
        if isinstance(patch, str)
        else []
    )
    plain = [
        line[4:].split("\t")[0].strip().removeprefix("a/").removeprefix("b/")
        for line in (patch.split("\n") if isinstance(patch, str) else ())
        if line.startswith(("--- ", "+++ "))
    ]
    return [value.get("path"), *named, *plain]


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, (list, tuple)) else 0


def _renamed(value: Any, old: str, new: str, size: int) -> Any:
    if isinstance(value, dict):
        if value.get("hash") == old:
            return {**value, "hash": new, "size": size}
        return {key: _renamed(item, old, new, size) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, old, new, size) for item in value]
    return value
