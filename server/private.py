"""Small files that only this user may read: written whole, or not at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_private(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Put a file of mode 0600 at a path; folders that it needs are made with mode 0700. Durable on return.

    Without `replace` a file that is there already stays, also where somebody makes it at the same time.

    Raises:
        OSError: it cannot be written; what was there is still there, and nothing is left beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(name, path)
            return
        with suppress(FileExistsError):
            os.link(name, path)
        os.unlink(name)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
