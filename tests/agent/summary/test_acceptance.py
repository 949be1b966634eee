"""Which summaries are taken: to-dos that are named, files that were changed, sizes."""

import pytest

from agent.summary.acceptance import Offer, mentions, refusal, untouched
from agent.summary.claims import claimed


def offer(text: str = "A summary.", **fields: int | str) -> Offer:
    known = {"calls": 0, "finish": "stop", "before": 1000, "after": 100, "room": 500, **fields}
    return Offer(text=text, **known)  # pyright: ignore[reportArgumentType]


def test_a_plain_summary_is_taken() -> None:
    assert refusal(offer(), [], [], []) is None
    assert refusal(offer("I fixed it, see the log.", calls=1), [], [], []) is None


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (offer(" \n"), "empty"),
        (offer("", calls=2), "called tools"),
        (offer(finish="length"), "cut off"),
        (offer(after=1000), "not shorter"),
        (offer(after=501), "no room"),
    ],
)
def test_what_is_no_summary_is_not(bad: Offer, why: str) -> None:
    assert why in (refusal(bad, [], [], []) or "")


@pytest.mark.parametrize(
    ("text", "todo", "named"),
    [
        ("Next I measure the throughput.", "measure throughput", True),
        ("Next come measurements of throughput.", "measure throughput", True),
        ("All is done.", "measure throughput", False),
        ("Documentation of the grammar is missing.", "document the grammar", True),
        ("Noch offen: die Prüfung der Größe.", "Größe prüfen", True),
        ("Fix it.", "do it", True),
        ("Nothing.", "do it", False),
        ("接下来 测试", "测试", True),
    ],
)
def test_a_todo_is_named_by_half_of_its_words(text: str, todo: str, named: bool) -> None:
    assert mentions(text, todo) is named


@pytest.mark.parametrize(
    "text",
    [
        "I changed other.py.",
        "Edited `src/other.py` to use the new name.",
        "other.py was modified.",
        "`other.py`: updated",
        "I fixed the bug and updated the helper in other.py",
        "**Files changed:**\n- other.py: new function\n\nNext: nothing.",
        "Modified files so far:\n1. `pkg/other.py`",
    ],
)
def test_a_claim_of_a_change_is_seen(text: str) -> None:
    assert [path.rsplit("/", 1)[-1] for path in claimed(text)] == ["other.py"]
    assert untouched(text, ["a.py"], []) and not untouched(text, ["lib/other.py"], [])
    assert not untouched(text, [], ["sed -i s/a/b/ other.py"])


@pytest.mark.parametrize(
    "text",
    [
        "I read other.py and looked at lib/util.ts.",
        "other.py was not changed.",
        "other.py must be changed next.",
        "I will have to edit other.py.",
        "The user changed other.py.",
        "Nothing was changed in other.py.",
        "I have not edited other.py yet.",
        "Version 2.10 was released; e.g. the call os.path.join() changed.",
        "I changed it to match other.py.",
        "Changed the parser so that it reads other.json.",
        "The bug is in other.py, line 40; who created other.py is unknown.",
        "Files read:\n- other.py\n- b.py",
        "Files to change:\n- other.py",
        "Files changed:\n- other.py: not yet",
        "If other.py is changed, the tests fail.",
        "See other.py. Changed nothing.",
    ],
)
def test_ordinary_prose_about_files_is_no_claim(text: str) -> None:
    assert claimed(text) == []
