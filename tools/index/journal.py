"""Which file the child works on, written where it outlives the child: so a file that kills it is known."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIZE: Final = 8192
FILE_S: Final = 2.0
"""Processor time one file may take; a parser that runs longer is stopped with the process it is in."""


class Journal:
    """A few bytes of memory shared with the server. Empty while no file is worked on."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # The default action ends the process even while C code runs, which no handler of Python's could.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)

    @contextmanager
    def working_on(self, root: str, path: str) -> Iterator[None]:
        """While it lasts, the death of the process is laid to this file, and its time is limited."""
        note = os.fsencode(f"{root}\n{path}")[: SIZE - 1]
        os.pwrite(self._descriptor, note + b"\0", 0)
        signal.setitimer(signal.ITIMER_PROF, FILE_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.pwrite(self._descriptor, b"\0", 0)
