"""Paths that file tools never change: git's own folder, whose hooks and settings are programs to run."""

from tools.errors import InvalidArguments


def require_unprotected(path: str) -> None:
    """Refuse a canonical path that is, or lies in, a `.git`: a repository's own or a nested one's.

    Compared without case, since some file systems do not tell `.GIT` from it.

    Raises:
        InvalidArguments: with what to do instead.
    """
    if any(part.lower() == ".git" for part in path.split("/")):
        raise InvalidArguments(
            f"{path} belongs to git itself, and file tools leave that alone: its hooks and settings are run "
            "as programs. Use git commands in the shell, or ask the user."
        )
