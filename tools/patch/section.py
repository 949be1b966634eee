"""What a patch says: for each file a section, in it chunks of old lines and the new ones in their place."""

from dataclasses import dataclass, field
from typing import Literal

from tools.applying import EditError


class BadPatch(EditError):
    """The patch itself cannot be understood. `data["line"]` is the line of it that is wrong, from 1."""

    def __init__(self, message: str, line: int | None = None) -> None:
        where = "" if line is None else f"Line {line} of the patch: "
        super().__init__(f"{where}{message} Nothing was written.", reason="bad_patch", line=line)


@dataclass(slots=True)
class Chunk:
    """Lines of one place. Each line ends with "\\n" unless the patch says that the file does not.

    `number` is the patch's line where the chunk begins, `numbers` those of the old lines. `line` is where the
    old lines begin in the file according to the patch (from 1; 0 before all); it may be wrong. `anchors` are
    lines of the file that the place lies below or in. `last`: it ends the file.
    """

    number: int
    line: int | None = None
    anchors: list[str] = field(default_factory=list)
    last: bool = False
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, mark: str, text: str, number: int) -> None:
        """Take up a line with its mark: " ", "-" or "+"."""
        if mark != "+":
            self.old.append(text + "\n")
            self.numbers.append(number)
        if mark != "-":
            self.new.append(text + "\n")

    @property
    def says_newline(self) -> bool | None:
        """Whether the file ends with a newline afterwards, where the patch says so."""
        lines = self.old[-1:] + self.new[-1:]
        if all(line.endswith("\n") for line in lines):
            return None
        return self.new[-1].endswith("\n") if self.new else None


@dataclass(slots=True)
class Section:
    """What happens to one file.

    `plain` is the path as written, where `path` lacks a first folder (`a/`, `b/`) that a diff puts there.
    `mode` are permission bits to set.
    """

    kind: Literal["add", "delete", "update"]
    path: str
    number: int
    target: str | None = None
    plain: str | None = None
    mode: int | None = None
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def only_edits(self) -> bool:
        """Whether the file keeps its name and mode."""
        return self.kind == "update" and self.target is None and self.mode is None

    @property
    def added(self) -> str:
        """The content of a new file."""
        return "".join(line for chunk in self.chunks for line in chunk.new)
