"""A unified diff for people, coloured, with line numbers, bounded."""

import difflib

from server.terminal.style import Style, clean

MAX_LINES = 200


def unified(
    path: str, old: str | None, new: str | None, style: Style, max_lines: int = MAX_LINES
) -> list[str]:
    """The lines of a diff between two texts; None = the file does not exist on that side."""
    before, after = (old or "").splitlines(), (new or "").splitlines()
    verb = "new file " if old is None else "deleted " if new is None else ""
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    return _shown(verb + clean(path), lines, style, max_lines)


def drawn(path: str, diff: str, style: Style, max_lines: int = MAX_LINES) -> list[str]:
    """The lines of a unified diff that was made elsewhere, with its own file names."""
    lines = diff.splitlines()
    before, after = (lines[0], lines[1]) if len(lines) > 1 and lines[0].startswith("--- ") else ("", "")
    lines = lines[2:] if before else lines
    verb = "new file " if before == "--- /dev/null" else "deleted " if after == "+++ /dev/null" else ""
    return _shown(verb + clean(path), lines, style, max_lines)


def _shown(title: str, lines: list[str], style: Style, max_lines: int) -> list[str]:
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    shown = [f"{style.bold(title)}  {style.green(f'+{added}')} {style.red(f'-{removed}')}"]
    shown += [_paint(clean(line), style) for line in lines[:max_lines]]
    if len(lines) > max_lines:
        shown.append(style.dim(f"… {len(lines) - max_lines} more lines"))
    return shown


def _paint(line: str, style: Style) -> str:
    if line.startswith("@@"):
        return style.cyan(line)
    if line.startswith("+"):
        return style.green(line)
    if line.startswith("-"):
        return style.red(line)
    return line
