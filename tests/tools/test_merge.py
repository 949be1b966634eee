"""Three-way merge: clean merges, conflicts, encodings, line ends, and taking hunks back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.merge import Conflict, hunks, merge, reverse, without

BASE = b"one\ntwo\nthree\nfour\nfive\nsix\n"


def _six(**changed: str) -> bytes:
    """`BASE` with some lines replaced (the text of a line, or several, or none)."""
    return "".join(changed.get(word, f"{word}\n") for word in BASE.decode().split()).encode()


CLEAN = {
    "far apart": (_six(one="ONE\n"), _six(six="SIX\n"), _six(one="ONE\n", six="SIX\n")),
    "insertion beside a deletion": (_six(two="two\nX\n"), _six(two=""), _six(two="X\n")),
    "neighbours": (_six(two="2\n"), _six(three="3\n"), _six(two="2\n", three="3\n")),
    "one side empty": (b"", BASE, b""),
    "last newline": (_six(six="six"), _six(one="zero\none\n"), _six(one="zero\none\n", six="six")),
}


@pytest.mark.parametrize("name", CLEAN)
def test_changes_that_do_not_overlap_merge(name: str) -> None:
    ours, theirs, expected = CLEAN[name]
    merged = merge(BASE, ours, theirs)
    assert merged.data == expected and not merged.conflicts
    assert merge(BASE, theirs, ours).data == expected


def test_the_same_change_on_both_sides_is_one_change() -> None:
    changed = BASE.replace(b"three", b"3")
    assert merge(BASE, changed, changed).data == changed


def test_a_conflict_keeps_ours_and_reports_both_sides() -> None:
    ours, theirs = BASE.replace(b"three", b"drei"), BASE.replace(b"three", b"trois").replace(b"six", b"sechs")
    merged = merge(BASE, ours, theirs)
    assert merged.data == ours.replace(b"six", b"sechs")
    assert merged.conflicts == (Conflict(3, "drei\n", "trois\n", "three\n"),)


def test_two_insertions_at_one_place_conflict_unless_they_are_equal() -> None:
    assert merge(b"a\nb\n", b"a\nx\nb\n", b"a\ny\nb\n").conflicts == (Conflict(2, "x\n", "y\n", ""),)
    assert merge(b"a\nb\n", b"a\nx\nb\n", b"a\nx\nb\n").data == b"a\nx\nb\n"


def test_a_change_that_is_there_already_with_more_beside_it_is_no_conflict() -> None:
    assert merge(b"a\nb\n", b"a\nB\nnew\n", b"a\nB\n").data == b"a\nB\nnew\n"
    assert merge(b"a\nb\n", b"a\nB\n", b"a\nnew\nB\n").data == b"a\nnew\nB\n"
    assert merge(b"a\nb\n", b"a\n", b"a\nB\n").conflicts


def test_line_ends_are_kept_and_a_whole_conversion_is_no_conflict() -> None:
    base, theirs = b"a\r\nb\r\nc\r\n", b"A\r\nb\r\nc\r\n"
    assert merge(base, b"a\r\nb\r\nC\r\n", theirs).data == b"A\r\nb\r\nC\r\n"
    assert merge(base, b"a\nb\nC\n", theirs).data == b"A\nb\nC\n"
    mixed = b"a\r\nb\nc\r\n"
    assert merge(mixed, b"a\r\nb\nC\r\n", b"A\r\nb\nc\r\n").data == b"A\r\nb\nC\r\n"


def test_taking_back_a_conversion_of_line_ends_is_not_forgotten() -> None:
    crlf, lf = b"a\r\nb\r\nc\r\n", b"a\nb\nc\n"
    assert reverse(crlf, lf, lf).data == crlf
    partly = reverse(crlf, lf, b"a\nb\nC\n")
    assert partly.conflicts and partly.data is not None and b"C\n" in partly.data


@pytest.mark.parametrize("codec", ["utf-8", "cp1252", "utf-16", "shift-jis", "gb18030"])
def test_other_encodings_merge_exactly(codec: str) -> None:
    words = {"shift-jis": "日本語", "gb18030": "中文字"}.get(codec, "käse")
    base, ours, theirs = (
        text.encode(codec)
        for text in (f"a\n{words}\nb\nc\n", f"A\n{words}\nb\nc\n", f"a\n{words}\nb\n{words}\n")
    )
    merged = merge(base, ours, theirs)
    assert merged.data == f"A\n{words}\nb\n{words}\n".encode(codec) and not merged.conflicts


def test_a_changed_encoding_is_a_conflict_not_a_mixture() -> None:
    base = "a\nkäse\nb\n".encode("cp1252")
    merged = merge(base, "a\nkäse\nB\n".encode(), "A\nkäse\nb\n".encode("cp1252"))
    assert merged.data == "a\nkäse\nB\n".encode() and merged.conflicts[0].why == "its encoding changed"


def test_binary_is_taken_whole_or_conflicts() -> None:
    before, after, later = b"\x00\x01", b"\x00\x02", b"\x00\x03"
    assert reverse(before, after, after).data == before
    kept = reverse(before, after, later)
    assert kept.data == later and kept.conflicts[0].why == "it is not text"


def test_a_made_file_goes_unless_it_was_changed() -> None:
    assert reverse(None, b"new\n", b"new\n").data is None
    kept = reverse(None, b"new\n", b"new\nmine\n")
    assert kept.data == b"new\nmine\n"
    assert kept.conflicts == (Conflict(1, "new\nmine\n", None, "new\n", "it was changed after it was made"),)
    assert reverse(None, b"new\n", None) == reverse(None, b"x", None)


def test_a_deleted_file_comes_back_unless_another_was_made() -> None:
    assert reverse(b"old\n", None, None).data == b"old\n"
    assert reverse(b"old\n", None, b"other\n").conflicts[0].why == "it was made again"
    assert not reverse(b"old\n", None, b"old\n").conflicts


def test_hunks_have_identities_and_single_ones_go_back() -> None:
    after = BASE.replace(b"one", b"eins").replace(b"six", b"sechs\nsieben")
    first, second = hunks(BASE, after)
    assert (first.start, first.end, first.old, first.new) == (1, 2, "one\n", "eins\n")
    assert (second.new_start, second.new_end) == (6, 8)
    assert first.id != second.id and hunks(BASE, after)[0].id == first.id
    assert without(BASE, after, [first.id]) == BASE.replace(b"six", b"sechs\nsieben")
    later = after.replace(b"three", b"drei")
    undone = reverse(BASE, after, later, [second.id])
    assert undone.data == BASE.replace(b"one", b"eins").replace(b"three", b"drei")
    with pytest.raises(KeyError):
        reverse(BASE, after, later, ["no such"])


LINES = st.lists(st.sampled_from("abcde"), max_size=12).map(
    lambda one: "".join(f"{x}\n" for x in one).encode()
)


@given(LINES, LINES, LINES)
def test_merging_never_invents_and_never_loses_ours(base: bytes, ours: bytes, theirs: bytes) -> None:
    merged = merge(base, ours, theirs)
    assert merged.data is not None
    if ours == base:
        assert merged.data == theirs and not merged.conflicts
    if theirs == base:
        assert merged.data == ours and not merged.conflicts
    known = set((base + ours + theirs).splitlines())
    assert set(merged.data.splitlines()) <= known
    for conflict in merged.conflicts:
        assert conflict.current is not None
        lines = ours.decode().splitlines(keepends=True)
        assert "".join(lines[conflict.line - 1 :]).startswith(conflict.current)


@given(LINES, LINES)
def test_reversing_a_change_alone_gives_what_was_there(before: bytes, after: bytes) -> None:
    assert reverse(before, after, after).data == before
    ids = [hunk.id for hunk in hunks(before, after)]
    assert reverse(before, after, after, ids).data == before
    assert reverse(before, after, before).data == before
