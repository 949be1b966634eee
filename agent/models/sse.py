"""Server-sent events, as far as chat completions use them."""

from agent.models.client import ModelError

MAX_EVENT = 64 * 2**20
"""Bytes of one event; more than any answer has."""


class EventStream:
    """Cuts a stream of bytes into the data of its events.

    Lenient where endpoints are: LF, CR LF or CR ends a line, the space after `data:` may be missing, an
    `error:` field (llama.cpp) counts as data, a JSON object without any field name too. Comments and
    other fields are dropped; `garbage` keeps the start of the first line that is none of these.
    """

    def __init__(self) -> None:
        self.garbage = b""
        self._buffer = bytearray()
        self._searched = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that is complete now.

        Raises:
            ModelError: an event is larger than `MAX_EVENT`.
        """
        buffer = self._buffer
        buffer += chunk
        last = buffer.rfind(b"\n", self._searched)
        if last < 0:
            last = buffer.rfind(b"\r", self._searched, len(buffer) - 1)
        if last < 0:
            self._searched = len(buffer)
            if len(buffer) > MAX_EVENT:
                raise ModelError(
                    f"The endpoint sent one event of more than {MAX_EVENT >> 20} MiB; stopped reading."
                )
            return []
        whole = bytes(buffer[: last + 1])
        del buffer[: last + 1]
        self._searched = 0
        return self._lines(whole)

    def end(self) -> list[bytes]:
        """What is complete once the stream has ended: its last event may lack the empty line."""
        rest = bytes(self._buffer) + b"\n\n"
        self._buffer.clear()
        return self._lines(rest)

    def _lines(self, whole: bytes) -> list[bytes]:
        events: list[bytes] = []
        for line in whole.splitlines():
            if line.startswith(b"data:"):
                data = line[6:] if line[5:6] == b" " else line[5:]
                if self._data and data.startswith((b"{", b"[DONE")) and self._data[-1].endswith(b"}"):
                    events.append(self._joined())  # an endpoint that leaves out the empty lines
                self._data.append(data)
            elif not line:
                if self._data:
                    events.append(self._joined())
            elif line.startswith(b"error:"):
                events.append(b'{"error":' + line[6:].strip() + b"}")
            elif line.startswith(b"{"):
                events.append(line)
            elif not self.garbage and not line.startswith((b":", b"event:", b"id:", b"retry:")):
                self.garbage = line[:200]
        return events

    def _joined(self) -> bytes:
        data, self._data = b"\n".join(self._data), []
        return data
