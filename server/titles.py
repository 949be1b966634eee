"""What a session is called, by its row in the store."""

from agent.state import title_of
from server.store import SessionRow


def session_title(row: SessionRow) -> str | None:
    """The name a session was given, else the one its first prompt gives it."""
    return row.title or title_of(row.opening or "") or None
