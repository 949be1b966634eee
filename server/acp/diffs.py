"""Edits as ACP `diff` content: real old and new text, bounded."""

from collections.abc import Awaitable, Callable
from typing import Any

from server.store import StoreError

WHOLE_LIMIT = 256 << 10
"""Bytes of both sides up to which a diff shows the whole file; beyond, only what changed and around it."""
CONTEXT_LINES = 3


async def diff_content(
    edit: dict[str, Any],
    path: str,
    read_blob: Callable[[str], Awaitable[bytes]],
    whole: int | None = None,
) -> dict[str, Any]:
    """One content item for an `edit` event, as `text_diff` makes it. Binary or huge changes become a
    sentence."""
    sizes = [side["size"] for side in (edit.get("before"), edit.get("after")) if side]
    if sum(sizes) > 8 << 20:
        return _sentence(edit, path, "too large to show")
    try:
        old, new = [
            None if side is None else (await read_blob(side["hash"])).decode()
            for side in (edit.get("before"), edit.get("after"))
        ]
    except UnicodeDecodeError:
        return _sentence(edit, path, "not text")
    except KeyError:
        return _sentence(edit, path, "its content is not stored any more")
    except StoreError:
        return _sentence(edit, path, "its content could not be read")
    return text_diff(path, old, new, whole) or _sentence(edit, path, "too large to show")


def text_diff(path: str, old: str | None, new: str | None, whole: int | None = None) -> dict[str, Any] | None:
    """A `diff` item of two texts (None = no such file), or None if even the changed part is too large.

    Texts of more than `whole` characters together (`WHOLE_LIMIT`) are shown by what changed in them.
    """
    line = None
    if len(old or "") + len(new or "") > (WHOLE_LIMIT if whole is None else whole):
        line, old, new = _changed_part(old or "", new or "")
        if len(old) + len(new) > WHOLE_LIMIT:
            return None
    item: dict[str, Any] = {"type": "diff", "path": path, "newText": new or ""}
    if old is not None:
        item["oldText"] = old
    meta: dict[str, Any] = {}
    if line is not None:
        meta["line"] = line
    if new is None:
        meta["deleted"] = True
    if meta:
        item["_meta"] = {"etude": meta}
    return item


def _changed_part(old: str, new: str) -> tuple[int, str, str]:
    """The changed lines of both texts with some context, and the line (from 1) where they begin."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    start, rest = max(0, head - CONTEXT_LINES), max(0, tail - CONTEXT_LINES)
    return (
        start + 1,
        "".join(before[start : len(before) - rest]),
        "".join(after[start : len(after) - rest]),
    )


def _sentence(edit: dict[str, Any], path: str, why: str) -> dict[str, Any]:
    verb = "created" if not edit.get("before") else "changed" if edit.get("after") else "deleted"
    text = f"{path} was {verb} ({why}; +{edit.get('added', 0)} −{edit.get('removed', 0)} lines)"
    return {"type": "content", "content": {"type": "text", "text": text}}
