"""Events are the same however their bytes are cut."""

import random

import pytest

from agent.models import sse
from agent.models.client import ModelError
from agent.models.sse import EventStream

STREAM = (
    b': comment\n\nevent: message\nid: 7\ndata: {"a": 1}\n\ndata:{"b": "\xc3\xa9"}\r\n\r\n'
    b"data: first\ndata: second\n\nretry: 10\n\n: ping\n\ndata: [DONE]\n\n"
)
EVENTS = [b'{"a": 1}', b'{"b": "\xc3\xa9"}', b"first\nsecond", b"[DONE]"]


def read(pieces: list[bytes]) -> tuple[list[bytes], EventStream]:
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)] + stream.end(), stream


def test_however_the_bytes_are_cut() -> None:
    assert read([STREAM])[0] == EVENTS
    assert read([STREAM[i : i + 1] for i in range(len(STREAM))])[0] == EVENTS
    rng = random.Random(5)
    for _ in range(200):
        cuts = sorted(rng.sample(range(len(STREAM)), 6))
        pieces = [STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
        assert read(pieces)[0] == EVENTS


def test_an_event_is_given_out_as_soon_as_it_is_whole() -> None:
    stream = EventStream()
    assert stream.feed(b"data: {}\n") == []
    assert stream.feed(b"\n") == [b"{}"]


def test_carriage_returns_alone_end_lines() -> None:
    assert read([b"data: a\r\r", b"data: b\r\r"])[0] == [b"a", b"b"]


def test_a_last_event_without_its_empty_line() -> None:
    assert read([b'data: {"a": 1}'])[0] == [b'{"a": 1}']


def test_events_without_empty_lines_between_them() -> None:
    assert read([b'data: {"a": 1}\ndata: {"b": 2}\ndata: [DONE]\n'])[0] == [
        b'{"a": 1}',
        b'{"b": 2}',
        b"[DONE]",
    ]


def test_errors_and_bare_objects_count_as_data() -> None:
    assert read([b'error: {"code": 500}\n\n{"error": "x"}\n'])[0] == [
        b'{"error":{"code": 500}}',
        b'{"error": "x"}',
    ]


def test_garbage_is_remembered() -> None:
    events, stream = read([b"<html>\n<body>\n"])
    assert (events, stream.garbage) == ([], b"<html>")
    assert read([STREAM])[1].garbage == b""


def test_a_long_line_is_read_in_linear_time() -> None:
    stream, piece = EventStream(), b"x" * 65_536
    stream.feed(b"data: ")
    for _ in range(500):
        assert stream.feed(piece) == []
    (event,) = stream.feed(b"\n\n")
    assert len(event) == 500 * 65_536


def test_an_event_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 2**20)
    stream = EventStream()
    with pytest.raises(ModelError, match="more than 1 MiB"):
        for _ in range(100):
            stream.feed(b"x" * 65_536)
