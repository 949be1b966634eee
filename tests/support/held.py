"""What this process holds in memory, without what its allocator keeps for later."""

import ctypes
import gc
import re
import sys

_LIBC = ctypes.CDLL(None)
_LIBC.open_memstream.restype = ctypes.c_void_p


def held() -> tuple[int, int]:
    """Bytes of large objects, and the number of small ones.

    Resident memory would count more: each of the allocator's arenas stays about as large as what it once held
    at the same time, in pieces.
    """
    gc.collect()
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = ctypes.c_void_p(_LIBC.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    _LIBC.malloc_info(0, stream)
    _LIBC.fclose(stream)
    report = (text.value or b"").decode()
    _LIBC.free(text)
    whole = report[report.rindex("</heap>") :]
    taken, free, mapped = (
        int(re.findall(rf'<{kind}"[^>]* size="(\d+)"', whole)[0])
        for kind in ('system type="current', 'total type="rest', 'total type="mmap')
    )
    return taken - free + mapped, sys.getallocatedblocks()
