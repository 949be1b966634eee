"""Variables that may stand before a command without changing what it does."""

import re
from typing import Final

from agent.judge.words import Word

_HARMLESS: Final = re.compile(
    r"LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES|CI|"
    r"PYTHONDONTWRITEBYTECODE|PYTHONUNBUFFERED|PYTHONHASHSEED|PYTHONWARNINGS|RUST_BACKTRACE|RUST_LOG|"
    r"NODE_ENV|CGO_ENABLED|GOOS|GOARCH|DEBUG|VERBOSE"
)
_VALUE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@,+-]*|[A-Za-z]+/[A-Za-z_]+|")


def harmless(name: str, value: Word) -> bool:
    """Whether a variable cannot name a program, a file or code that the command would use."""
    return bool(_HARMLESS.fullmatch(name)) and value.plain is not None and bool(_VALUE.fullmatch(value.plain))
