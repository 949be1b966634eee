"""How likely a file is what somebody looks for, before the question is known."""

import re
from typing import Final

TESTS: Final = 0.75
PROSE: Final = 0.8
DATA: Final = 0.6

_TESTS: Final = re.compile(
    r"(?:^|/)(?:tests?|testing|testdata|__tests__|specs?|fixtures)/|(?:^|/)(?:test_[^/]*|tests|conftest)\.py$"
    r"|(?:_test|_spec|\.test|\.spec)\.\w+$"
)
_CODE: Final = re.compile(
    r"\.(?:py|pyi|pyx|[cm]?[jt]sx?|go|rs|java|kts?|scala|[ch]|cc|cpp|cxx|hh|hpp|m|mm|cs|fs|rb|php|swift|lua|sh|bash|"
    r"zsh|ps1|pl|pm|r|jl|ex|exs|erl|hs|ml|mli|clj|dart|zig|nim|sql|proto|vue|svelte|el|vim|s|asm)$",
    re.IGNORECASE,
)
_DATA: Final = re.compile(
    r"\.(?:po|pot|json|jsonl|ndjson|svg|lock|csv|tsv|xml|map|ipynb|log|patch|diff|snap|geojson|sum)$"
    r"|\.min\.\w+$|(?:^|/)(?:package-lock\.json|SOURCES\.txt)$",
    re.IGNORECASE,
)


def prior(path: str) -> float:
    """The factor of a file's score: code before prose, prose before data, the tested before its tests."""
    factor = TESTS if _TESTS.search(path) else 1.0
    if is_data(path):
        return factor * DATA
    return factor if _CODE.search(path) else factor * PROSE


def is_data(path: str) -> bool:
    """Whether a file holds data rather than what people write for each other."""
    return _DATA.search(path) is not None
