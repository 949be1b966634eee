"""How the indentation of a block in a file differs from that of the same block as somebody wrote it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

_LEADING: Final = re.compile(r"[ \t]*")
_COMMON_UNITS: Final = (4, 2, 8, 3)


@dataclass(frozen=True, slots=True)
class Shift:
    """What must be done to the indentation of lines written beside the searched ones.

    `drop` is taken from each line and `add` put before it. Where that does not fit or would mix tabs and
    spaces, blanks are converted: `unit` is the width of a tab (and of one level), `columns` the difference
    in width, `tabs` whether the file's block uses tabs. The default changes nothing.
    """

    add: str = ""
    drop: str = ""
    simple: bool = True
    unit: int = 0
    columns: int = 0
    tabs: bool = False

    def apply(self, line: str) -> str | None:
        """The line with the file's indentation; None where it is indented less than what must go."""
        leading = indentation(line)
        if len(leading) == len(line):
            return line
        if self.simple and leading.startswith(self.drop):
            blanks = self.add + leading[len(self.drop) :]
            if not self.unit or not _mixed(blanks) or _mixed(leading):
                return blanks + line[len(leading) :]
        width = _width(leading, self.unit) + self.columns
        if not self.unit or width < 0:
            return None
        blanks = "\t" * (width // self.unit) + " " * (width % self.unit) if self.tabs else " " * width
        return blanks + line[len(leading) :]


def indentation(line: str) -> str:
    match = _LEADING.match(line)
    return match.group() if match else ""


def shift_between(
    written: Sequence[str], found: Sequence[str], flat: str, beside: Sequence[str] = ()
) -> Shift | None:
    """The uniform shift that turns the indentation of `written` into that of `found`, line by line.

    Blank lines have none. `flat` is the whole file, for its style where the block itself shows none;
    `beside` are the lines the shift will be applied to, written in the same style as `written`.
    Returns None where the lines differ by different amounts.
    """
    pairs = [
        (indentation(old), indentation(new))
        for old, new in zip(written, found, strict=True)
        if old.strip(" \t") and new.strip(" \t")
    ]
    if all(old == new for old, new in pairs):
        return Shift()
    converted = _converted(pairs, flat, [indentation(line) for line in beside])
    old, new = pairs[0]
    add = new[: len(new) - len(old)] if new.endswith(old) else ""
    drop = old[: len(old) - len(new)] if old.endswith(new) else ""
    if (add or drop) and all(new == add + old[len(drop) :] and old.startswith(drop) for old, new in pairs):
        return replace(converted or Shift(), add=add, drop=drop, simple=True)
    return converted


def _converted(pairs: list[tuple[str, str]], flat: str, beside: list[str]) -> Shift | None:
    blanks = "".join(new for _, new in pairs)
    tabs = "\t" in blanks if blanks else "\n\t" in flat
    for unit in _units(pairs, flat, beside):
        differences = {_width(new, unit) - _width(old, unit) for old, new in pairs}
        if len(differences) == 1:
            return Shift(simple=False, unit=unit, columns=differences.pop(), tabs=tabs)
    return None


def _units(pairs: list[tuple[str, str]], flat: str, beside: list[str]) -> list[int]:
    """Widths a tab may stand for: the file's own level first, then the step of the written block."""
    every = [*beside, *(blanks for pair in pairs for blanks in pair)]
    spaces = sorted({len(blanks) for blanks in every if blanks and "\t" not in blanks})
    steps = [high - low for low, high in zip([0, *spaces], spaces, strict=False)]
    own = _file_unit(flat)
    units = ([own] if own else []) + ([min(steps)] if steps else []) + list(_COMMON_UNITS)
    return [unit for unit in dict.fromkeys(units) if unit > 1]


def _file_unit(flat: str) -> int | None:
    """The width of one level in a file indented with spaces: its narrowest common indentation."""
    sample = flat[:20_000]
    counts = {unit: len(re.findall(rf"\n {{{unit}}}(?=[^ \t\n])", sample)) for unit in (2, 4, 8, 3)}
    best = max(counts, key=lambda unit: counts[unit])
    if not counts[best]:
        return None
    return next(unit for unit in (2, 3, 4, 8) if counts[unit] * 4 >= counts[best])


def _mixed(blanks: str) -> bool:
    return "\t" in blanks and " " in blanks


def _width(blanks: str, unit: int) -> int:
    return blanks.count("\t") * unit + blanks.count(" ")
