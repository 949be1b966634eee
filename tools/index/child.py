"""The child process of the index: parses and writes, one workspace's slice of work after the other.

Started by `Indexer` with the server's pid and a descriptor for the journal; talks over standard input and
output.
"""

import ctypes
import gc
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

if __name__ == "__main__":  # started by path, so that no other folder is searched for modules before ours
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.index.catalog import STRIKES
from tools.index.frames import BadFrame, packed, receive_blocking
from tools.index.journal import Journal
from tools.index.languages import language_of
from tools.index.parsing import parse
from tools.index.site import Site

MEMORY: Final = 3 << 30
"""Address space of the child: a file that makes a parser take more ends it."""
MAX_SITES: Final = 16
"""Workspaces kept open; the one not asked about for longest is closed."""

NICENESS: Final = 10
"""Nobody waits for most of its work: whatever else runs comes first."""

_PR_SET_PDEATHSIG: Final = 1

Message = tuple[dict[str, Any], bytes]


class Child:
    """Answers messages; works on one workspace at a time between them."""

    def __init__(self, journal: Journal) -> None:
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self._journal = journal
        self._sites: dict[str, Site] = {}
        self._working: deque[str] = deque()
        self._suspects: dict[str, list[str]] = {}
        self._out = os.fdopen(os.dup(1), "wb")

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            while not self._working or not self._messages.empty():
                message = self._messages.get()
                if message is None:
                    return
                self._handle(*message)
            root = self._working.popleft()
            site = self._sites.get(root)
            if site is None:
                continue
            more = site.step()
            for number in site.answered():
                self._send({"id": number, **site.report()})
            if more:
                self._working.append(root)
                self._send({"op": "progress", **site.report()})

    def _listen(self) -> None:
        stream = os.fdopen(os.dup(0), "rb")
        try:
            while (message := receive_blocking(stream)) is not None:
                self._messages.put(message)
        except BadFrame:
            traceback.print_exc()
        # Whoever reads files and parses them must not outlive the server, whatever it is doing now.
        os._exit(0)

    def _handle(self, message: dict[str, Any], data: bytes) -> None:
        match message["op"]:
            case "refresh":
                self._refresh(message)
            case "parse":
                self._parse(message, data)
            case "crashed":
                self._suspect(bytes.fromhex(message["file"]), message["slow"])
            case "forget":
                if (site := self._sites.pop(message["root"], None)) is not None:
                    site.close()
                self._send({"id": message["id"]})

    def _suspect(self, note: bytes, slow: bool) -> None:
        """The child before this one died at a file, which is certain to happen again if it was `slow`."""
        root, _, path = os.fsdecode(note).partition("\n")
        if root:
            self._suspects.setdefault(root, []).extend([path] * (STRIKES if slow else 1))

    def _refresh(self, message: dict[str, Any]) -> None:
        root = message["root"]
        site = self._sites.pop(root, None)
        if site is None:
            site = Site(Path(root), Path(message["database"]), self._journal)
            for old in list(self._sites)[: max(len(self._sites) - MAX_SITES + 1, 0)]:
                if old not in self._working:
                    self._sites.pop(old).close()
        self._sites[root] = site
        for path in self._suspects.pop(root, ()):
            site.suspect(path)
        site.ask(message["id"], message["paths"])
        if root not in self._working:
            # What is asked for comes before what is merely under way elsewhere.
            self._working.appendleft(root)

    def _parse(self, message: dict[str, Any], data: bytes) -> None:
        name = language_of(message["path"], data)
        if name is None:
            self._send({"id": message["id"], "parsed": False})
            return
        try:
            with self._journal.working_on("", message["path"]):
                parsed, _ = parse(name, data, flaws=True)
        except Exception:  # noqa: BLE001 - whatever a hostile text makes a parser raise
            traceback.print_exc()
            self._send({"id": message["id"], "parsed": False})
            return
        self._send({"id": message["id"], "parsed": True}, parsed.packed())

    def _send(self, message: dict[str, Any], data: bytes = b"") -> None:
        self._out.write(packed(message, data))
        self._out.flush()


def _bind_to_parent(parent: int) -> None:
    """End with the server even when it is killed; take no more memory than a file may need, and no time that
    others want."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the server decides when the child ends


def main() -> None:
    _bind_to_parent(int(sys.argv[1]))
    gc.set_threshold(20_000, 20, 50)  # trees make many objects, and no cycles
    started = time.monotonic()
    try:
        Child(Journal(int(sys.argv[2]))).run()
    except BrokenPipeError:
        sys.exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.write(f"after {time.monotonic() - started:.1f} s\n")
        raise


if __name__ == "__main__":
    main()
