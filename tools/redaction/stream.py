"""Redacts a text that comes little by little: what was shown cannot be taken back."""

from tools.redaction.pieces import LONGEST, cut
from tools.redaction.redactor import Redactor
from tools.redaction.scan import Open


class Stream:
    """Redacts the output of a tool. Holds back the line that has not ended, up to 16 KiB of it.

    The result does not depend on how the text was cut into pieces.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""
        self._block: Open | None = None

    def feed(self, text: str) -> str:
        """What may be shown now."""
        data = self._held + text.encode("utf-8", "surrogatepass")
        at = data.rfind(b"\n") + 1
        end = at
        while len(data) - end > LONGEST:
            end = cut(data, end)
        self._held = data[end:]
        return self._shown(data[:end]) if end else ""

    def finish(self) -> str:
        """What was held back, when nothing more comes."""
        data, self._held = self._held, b""
        return self._shown(data) if data else ""

    def _shown(self, data: bytes) -> str:
        clean, self._block = self._redactor.advance(data, self._block)
        return clean.decode("utf-8", "surrogatepass")


class Guard:
    """Takes known values out of a model's answer. Holds back only what may be the beginning of one."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, text: str) -> str:
        """What may be shown now."""
        text = self._held + text
        data = text.encode("utf-8", "surrogatepass")
        at = self._redactor.unfinished(data)
        if at >= len(data):
            self._held = ""
            return self._redactor.conceal(text)
        shown = data[:at].decode("utf-8", "surrogatepass")
        self._held = data[at:].decode("utf-8", "surrogatepass")
        return self._redactor.conceal(shown)

    def finish(self) -> str:
        """What was held back, when nothing more comes."""
        text, self._held = self._held, ""
        return self._redactor.conceal(text)
