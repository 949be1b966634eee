"""Which files a text says were changed: only forms that mean just that, so that ordinary prose passes."""

import re
from typing import Final

_EXTENSIONS: Final = (
    "py|pyi|js|mjs|cjs|jsx|ts|tsx|json|md|rst|toml|ya?ml|txt|html?|css|scss|c|h|cc|cpp|hpp|cs|rs|go|java|kt|rb"
    "|php|sh|bash|cfg|ini|sql|xml|lock|csv|swift|scala|lua|vue|svelte|ipynb|proto|gradle|cmake|mk|env"
)
_PATH: Final = rf"`?(?P<path>[\w./@+-]*[\w@+-]\.(?:{_EXTENSIONS}))`?(?![\w(.]*\(|\.?\w)"
_DONE: Final = (
    r"(?:changed|edited|modified|created|rewrote|wrote|deleted|removed|renamed|updated|patched|refactored)"
)
_AHEAD: Final = re.compile(
    r"(?:\bnot|n't|\bnever|\bto be|\bbe|\bshould|\bmust|\bwill|\bneeds?|\bwithout|\bnothing|\bif|\bwhen|\bwho"
    r"|\bnor|\bno(?: files?)?|\buser|\bthey|\bgets?|\bcan|\bcould|\bwould|\bmay|\bwhether|\bis|\bare)"
    r"\W+(?:\w+\W+)?$",
    re.IGNORECASE,
)
"""Before the verb: not done, not yet, or not by the agent."""
_OTHER: Final = re.compile(
    r"\b(?:from|like|as|per|using|reads?|reading|see|saw|against|match(?:es)?|based|because|after|before|while"
    r"|that|which|imports?|imported|uses?|used|with|by|of|for|to|at|than|since|still|not|run|runs|ran)\b",
    re.IGNORECASE,
)
"""Between verb and path: the path is something else than what was changed."""
_VERB_FIRST: Final = re.compile(
    rf"\b{_DONE}\b(?P<between>[^.;:\n]{{0,40}}?)(?<![\w./-]){_PATH}", re.IGNORECASE
)
_PATH_FIRST: Final = re.compile(
    rf"(?<![\w./-]){_PATH}[\s:,()–—-]{{1,3}}(?:was|were|has been|is now|now)?\s*{_DONE}\b(?!\s+by\b)",
    re.IGNORECASE,
)
_HEAD: Final = re.compile(
    rf"^[\s#*_-]*(?:files?\s+)?(?:i\s+)?{_DONE}(?:\s+(?:files?|so far))*[\s*_]*:[\s*_]*$", re.IGNORECASE
)
_BULLET: Final = re.compile(rf"^\s*(?:[-*+•]|\d+[.)])\s+\**{_PATH}", re.IGNORECASE)
_NOT_CHANGED: Final = re.compile(
    r"\b(?:not|unchanged|read only|only read|to do|todo|later|next)\b", re.IGNORECASE
)


def claimed(text: str) -> list[str]:
    """Paths that a summary says were changed, each once, in order.

    Counted are `changed PATH`, `PATH was changed`, and the items of a list headed `Files changed:`. A path
    that was read, is to be changed, or stands behind a word of its own (`changed it to match PATH`) is not.
    """
    found: dict[str, None] = {}
    listing = False
    for line in text.splitlines():
        if _HEAD.match(line):
            listing = True
            continue
        item = _BULLET.match(line)
        if listing and item and not _NOT_CHANGED.search(line):
            found[item["path"]] = None
        listing = listing and (item is not None or not line.strip())
        for match in _VERB_FIRST.finditer(line):
            if not _AHEAD.search(line[: match.start()]) and not _OTHER.search(match["between"]):
                found[match["path"]] = None
        for match in _PATH_FIRST.finditer(line):
            if not _NOT_CHANGED.search(line[: match.start()]):
                found[match["path"]] = None
    return list(found)
