"""The characters of a message that came live and are in no event yet."""

from dataclasses import replace

from agent.events import Live


class Growing:
    """They begin at `offset`, without a gap: what comes after one is left to the event that will hold it."""

    __slots__ = ("end", "first", "offset", "parts")

    def __init__(self, first: Live) -> None:
        self.first, self.offset, self.end = first, first.offset, first.offset
        self.parts: list[str] = []

    def add(self, live: Live) -> None:
        """Take the next characters."""
        if live.offset == self.end:
            self.parts.append(live.text)
            self.end += len(live.text)

    def live(self) -> Live:
        return replace(self.first, offset=self.offset, text="".join(self.parts))

    def trim(self, end: int) -> bool:
        """Forget what is stored now, up to `end`. False if nothing is left."""
        rest = "".join(self.parts)[max(0, end - self.offset) :]
        self.offset, self.parts = max(end, self.offset), [rest]
        self.end = self.offset + len(rest)
        return bool(rest)
