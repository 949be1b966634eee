"""A draft made ready to be stored: data encoded, blobs checked and compressed, references known."""

from dataclasses import dataclass
from typing import Any, Final

from agent.events import Draft, Event
from agent.payload import encode
from agent.prompt_chain import parent_of
from server.store.blobs import Blob, pack
from server.store.errors import LogError, MissingBlob
from tools.workspace import content_hash

INLINE_BYTES: Final = 4096
"""Longer data is stored as a blob."""

REFERENCES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "generation": (("prompt", "node"), ("tokens", "prompt"), ("tokens", "routes")),
    "tool.result": (("output", "hash"),),
}
"""Where the data of an event type names blobs. Blobs handed in with a draft are referenced in any case. What
`edit`, `user_edit` and `checkpoint` name lies in the snapshot store, which keeps its own references."""

CHAINS: Final = (("prompt", "node"), ("tokens", "prompt"))
"""Those of a generation that name the node of a chain."""


@dataclass(slots=True)
class Entry:
    """`event` or `refusal` is set by each attempt to store it, whether or not that attempt commits."""

    session_id: str
    term: int
    draft: Draft
    payload: bytes | None
    blob: str | None
    refs: frozenset[str]
    blobs: dict[str, Blob]
    event: Event | None = None
    refusal: LogError | None = None

    @property
    def needed(self) -> set[str]:
        """Every blob that must be stored once this entry is."""
        parents = {blob.parent for blob in self.blobs.values() if blob.parent is not None}
        return {*self.refs, *parents, *self.blobs}


def encode_data(draft: Draft) -> bytes:
    """Raises `LogError` for data that has no JSON form."""
    try:
        return encode(draft.data)
    except TypeError as error:
        raise LogError(
            f"a {draft.type!r} event holds what JSON cannot ({error}); nothing was stored"
        ) from error


def prepare(session_id: str, term: int, draft: Draft, payload: bytes) -> Entry:
    """Takes milliseconds per megabyte of blobs.

    Raises:
        MissingBlob: a blob is not what its name says.
    """
    for name, content in draft.blobs.items():
        if content_hash(content) != name:
            raise MissingBlob(
                f"a {draft.type!r} event came with a blob named {name} "
                f"whose content is {content_hash(content)}"
            )
    parents = _parents(draft)
    refs = _named(draft) | (draft.blobs.keys() - parents.values())
    blobs = {name: pack(name, content, parents.get(name)) for name, content in draft.blobs.items()}
    blob: str | None = None
    if len(payload) > INLINE_BYTES:
        blob = content_hash(payload)
        blobs[blob] = pack(blob, payload)
        refs |= {blob}
    inline = payload if blob is None else None
    return Entry(session_id, term, draft, inline, blob, frozenset(refs), blobs)


def _named(draft: Draft) -> set[str]:
    return {name for path in REFERENCES.get(draft.type, ()) if (name := _at(draft.data, path)) is not None}


def _at(data: Any, path: tuple[str, ...]) -> str | None:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, str) else None


def _parents(draft: Draft) -> dict[str, str]:
    """The parent of each prompt node that came with a generation."""
    parents: dict[str, str] = {}
    if draft.type != "generation":
        return parents
    for path in CHAINS:
        name = _at(draft.data, path)
        while name is not None and name in draft.blobs and name not in parents:
            try:
                parent = parent_of(draft.blobs[name])
            except ValueError as error:
                raise MissingBlob(f"the blob {name} of a generation's prompt is broken: {error}") from error
            if parent is not None:
                parents[name] = parent
            name = parent
    return parents
