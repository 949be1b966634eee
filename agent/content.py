"""From what a client sends in a prompt (ACP content blocks, editor context) to the text the model sees."""

from typing import Any

BLOCK_LIMIT = 100_000
"""Characters of one embedded resource that reach the model."""


def plain_text(blocks: list[dict[str, Any]]) -> str:
    """The user's own words: the text blocks, in order."""
    return "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def render(text: str, blocks: list[dict[str, Any]], editor: dict[str, Any] | None) -> str:
    """The user message: the user's words, then what was attached, then what the editor shows."""
    parts = [text, *(part for block in blocks if (part := _attachment(block)))]
    if context := _editor(editor or {}):
        parts.append(f"<editor_context>\n{context}\n</editor_context>")
    return "\n\n".join(part for part in parts if part)


def _attachment(block: dict[str, Any]) -> str:
    match block.get("type"):
        case "resource_link":
            return f"[attached: {block.get('uri') or block.get('name')}]"
        case "resource":
            resource = block.get("resource") or {}
            uri, text = resource.get("uri", "resource"), resource.get("text")
            if not isinstance(text, str):
                return f"[attached: {uri} (binary, not shown)]"
            clipped = text[:BLOCK_LIMIT]
            note = "" if len(clipped) == len(text) else f"\n[{len(text) - len(clipped)} characters left out]"
            return f'<attached uri="{uri}">\n{clipped}{note}\n</attached>'
        case "image" | "audio" as kind:
            return f"[{kind} not shown: this model reads text only]"
        case _:
            return ""


def _editor(editor: dict[str, Any]) -> str:
    lines: list[str] = []
    if active := editor.get("activeFile"):
        lines.append(f"active file: {active}")
    if cursor := editor.get("cursor"):
        lines.append(f"cursor: line {cursor.get('line')}")
    if opened := editor.get("openFiles"):
        lines.append("open files: " + ", ".join(map(_name, opened[:20])))
    if recent := editor.get("recentFiles"):
        lines.append("recent files: " + ", ".join(map(_name, recent[:20])))
    if visible := editor.get("visibleRanges"):
        lines.append("visible: " + "; ".join(map(_range, visible[:8])))
    for selection in _items(editor.get("selection"))[:4]:
        if text := selection.get("text"):
            lines.append(f"selection ({_range(selection)}):\n{str(text)[:BLOCK_LIMIT]}")
    for problem in _items(editor.get("diagnostics"))[:30]:
        where = f"{problem.get('path')}:{problem.get('line')}"
        lines.append(f"{problem.get('severity', 'problem')} {where} {problem.get('message')}")
    return "\n".join(lines)


def _items(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _name(item: Any) -> str:
    return str(item.get("path", "")) if isinstance(item, dict) else str(item)


def _range(item: dict[str, Any]) -> str:
    return f"{item.get('path', '')} {item.get('start', '?')}-{item.get('end', '?')}".strip()
