"""Placeholders for code left out are found in added text; ordinary code and prose are not."""

import pytest

from tools.refusals import omission, redaction

OMISSIONS = [
    "// ... rest of code ...",
    "// existing code",
    "# ... existing code ...",
    "    # ... rest of the methods ...",
    "// ... existing code ...",
    "... rest of the file ...",
    "# rest of the code unchanged",
    "# rest of the function remains the same",
    "<!-- ... rest of the content ... -->",
    "(rest of methods ...)",
    "// rest of methods ...",
    "{/* ... existing code ... */}",
    "# ... (existing code) ...",
    "// ... other methods remain unchanged",
    "# ... keep existing code ...",
    "// (unchanged code ...)",
    "... existing imports ...",
    "# … rest of file …",
    "# ... implementation unchanged ...",
    "-- ... rest of the code here ...",
]
ORDINARY = [
    "...",
    "    ...",
    "# ...",
    "x = [...]",
    "print('... rest of code ...')",
    "# rest of the arguments",
    "# The rest of the file is data.",
    "// handle the existing code path",
    "raise NotImplementedError  # ... rest",
    "The rest of the code is below.",
    "# the remaining lines",
    "def rest_of_code(): ...",
    "const [first, ...rest] = items;",
    "# previous implementation was slow",
    "- existing functions must be kept, see ...",
    "# Existing tests cover the happy path",
    "x = foo(...)  # existing code",
    "# unchanged",
    "// original implementation by X",
    "/// Returns the remaining lines.",
]


@pytest.mark.case("edit-8")
@pytest.mark.parametrize("line", OMISSIONS)
def test_an_added_placeholder_is_found(line: str) -> None:
    assert omission("a\nb\n", f"a\n{line}\nb\n") == line.strip()
    assert omission(f"a\n{line}\n", f"{line}\nb\n") is None
    assert omission(f"a\n{line}\n", f"{line}\nb\n{line}\n") == line.strip()


@pytest.mark.case("edit-8")
@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_lines_are_not(line: str) -> None:
    assert omission("", f"a\n{line}\n") is None


def test_a_redaction_marker_may_stay_only_where_it_really_is() -> None:
    assert redaction("x = '[REDACTED:key-1]'", "x = 'sk-1'") == "[REDACTED:key-1]"
    assert redaction("x = '[REDACTED:key-1]'", "y = '[REDACTED:key-1]'") is None
    assert redaction("x = '[REDACTED]'", "") is None
