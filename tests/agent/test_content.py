"""Prompt blocks and editor context, as the model reads them."""

from agent.content import plain_text, render


def test_the_users_words_come_first() -> None:
    blocks = [
        {"type": "text", "text": "why?"},
        {"type": "resource_link", "uri": "file:///w/a.py", "name": "a.py"},
        {"type": "resource", "resource": {"uri": "file:///w/b.py", "text": "b = 1"}},
        {"type": "image", "data": "…", "mimeType": "image/png"},
    ]
    text = render(plain_text(blocks), blocks, {"activeFile": "a.py", "cursor": {"line": 3}})
    assert text.startswith("why?\n")
    assert "[attached: file:///w/a.py]" in text
    assert "b = 1" in text
    assert "image not shown" in text
    assert text.endswith("</editor_context>")
    assert "active file: a.py\ncursor: line 3" in text


def test_nothing_is_added_where_nothing_was_attached() -> None:
    assert render("hello", [{"type": "text", "text": "hello"}], None) == "hello"
    assert render("hello", [], {}) == "hello"


def test_strange_editor_context_is_ignored() -> None:
    assert render("hi", [], {"selection": "x", "diagnostics": [3, None], "openFiles": []}) == "hi"


def test_a_huge_attachment_is_bounded_and_says_so() -> None:
    blocks = [{"type": "resource", "resource": {"uri": "u", "text": "x" * 300_000}}]
    text = render("", blocks, None)
    assert len(text) < 101_000
    assert "200000 characters left out" in text
