"""Text that must not be written: placeholders for code that was left out, and redacted secrets."""

import re
from collections import Counter
from typing import Final

REDACTION_MARKER: Final = re.compile(r"\[(?:REDACTED:[^\]\s]{1,80}|secret:[a-z0-9-]{1,40}:[0-9a-f]{8,64})\]")
"""What stands in the model's view of a file in the place of a secret."""

_HINT: Final = re.compile("rest|remain|existing|unchanged|previous|original|same|omitted|stay", re.IGNORECASE)
_COMMENT: Final = re.compile(r"^(?://+|#+|--+|/\*+|\*+|<!--|\{/\*|;+|%+|\(\*|'''|\"\"\")\s*")
_COMMENT_END: Final = re.compile(r"\s*(?:\*/\}?|-->|\*\)|'''|\"\"\")\s*$")
_DOTS: Final = re.compile(r"^(?:\.{3,}|…)\s*|\s*(?:\.{3,}|…)$")
_CODE: Final = (
    r"(?:code|implementation|method|function|class|file|content|logic|import|test|module|component|"
    r"definition|field|propert(?:y|ies)|handler|body|statement|line)(?:e?s)?"
)
_WHAT: Final = rf"(?:(?:the|your|this|of|other|same|\w+)\s+){{0,3}}?{_CODE}"
_STAYS: Final = (
    r"(?:\s*[,:(-]?\s*(?:here|above|below|unchanged|omitted|as before|as is|for brevity|"
    r"(?:stays?|remains?|is|are|goes)(?:\s+(?:the|same|unchanged|here|as|before|is|omitted))*)\s*[.)]?)"
)
_REST: Final = re.compile(rf"(?:the\s+)?(?:rest|remainder)\s+of\s+{_WHAT}{_STAYS}?", re.IGNORECASE)
_REST_STAYS: Final = re.compile(rf"(?:the\s+)?(?:rest|remainder)\s+of\s+{_WHAT}{_STAYS}", re.IGNORECASE)
_EXISTING: Final = re.compile(
    rf"(?:the\s+|your\s+|\w+\s+)?(?:existing|unchanged|previous|original|remaining|same)\s+{_WHAT}{_STAYS}?",
    re.IGNORECASE,
)
_STATED: Final = re.compile(rf"(?:existing|unchanged)\s+{_CODE}{_STAYS}?", re.IGNORECASE)
_OMITTED: Final = re.compile(rf"{_WHAT}\s+(?:unchanged|omitted|remains?|stays?){_STAYS}?", re.IGNORECASE)


def omission(old: str, new: str) -> str | None:
    """A line that `new` adds and that stands for code left out; None where there is none.

    A line counts only as a whole: a comment or a line of dots that says nothing else. What `old` has as
    often is kept text, not an omission.
    """
    if not _HINT.search(new):
        return None
    kept = Counter(line.strip() for line in old.splitlines())
    for line in new.splitlines():
        plain = line.strip()
        if kept[plain]:
            kept[plain] -= 1
        elif _stands_for_code(plain):
            return plain
    return None


def redaction(new: str, replaced: str) -> str | None:
    """A redaction marker in `new` that the replaced text of the file does not really contain."""
    for marker in REDACTION_MARKER.findall(new):
        if marker not in replaced:
            return marker
    return None


def _stands_for_code(line: str) -> bool:
    if len(line) > 160:
        return False
    body = _COMMENT_END.sub("", _COMMENT.sub("", line))
    comment = body != line
    body = body.strip("()[]{} \t")
    undotted = _DOTS.sub("", _DOTS.sub("", body)).strip("()[]{} \t")
    dotted = undotted != body
    if dotted and any(form.fullmatch(undotted) for form in (_REST, _EXISTING, _OMITTED)):
        return True
    return comment and any(form.fullmatch(undotted) for form in (_REST_STAYS, _STATED))
