"""The regular-expression engine of the scans: RE2 on bytes, in time linear to the text."""

from typing import Any

_MEMORY = 64 << 20


def compiled(pattern: bytes) -> Any:
    """A rule for `finditer` and `search` on bytes. Loads RE2 when it is first needed."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    options.log_errors = False
    return re2.compile(pattern, options)
