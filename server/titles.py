"""What a session is called where nobody has named it: the first line of its first prompt."""

from server.store import SessionRow

LENGTH = 80


def title_of(text: str) -> str:
    """The first line that says something, cut to a length."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= LENGTH else f"{line[: LENGTH - 1]}…"


def session_title(row: SessionRow) -> str | None:
    """The name a session was given, else the one its first prompt gives it."""
    return row.title or title_of(row.opening or "") or None
