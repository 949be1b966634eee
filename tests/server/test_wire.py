"""`server.wire`: whatever the log can hold, a client can be sent."""

from typing import Any

import orjson
import pytest

from server.wire import DEPTH, nests_deeper, to_json


def nested(depth: int) -> Any:
    value: Any = "leaf"
    for level in range(depth):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": [1, None, "ü", -(2**63), 2**64 - 1]}, {"a": [1, None, "ü", -(2**63), 2**64 - 1]}),
        ({"\ud800": "a\udcffb"}, {"?": "a?b"}),
        ([2**64, -(2**70)], [str(2**64), str(-(2**70))]),
        ([float("nan"), float("-inf"), "\ud800"], [None, None, "?"]),
        ((1, "\udfff"), [1, "?"]),
    ],
)
def test_what_json_cannot_say_is_said_another_way(value: Any, shown: Any) -> None:
    assert orjson.loads(to_json(value)) == shown


def test_an_integer_that_python_does_not_write_out_is_sent() -> None:
    assert orjson.loads(to_json({"n": 10**5000}))["n"].startswith("0x")


@pytest.mark.parametrize("depth", [DEPTH, 250, 254, 255, 900])
def test_any_nesting_can_be_sent(depth: int) -> None:
    assert b"leaf" in to_json(nested(depth)) or b"nested too deeply" in to_json(nested(depth))


def test_nesting_is_measured() -> None:
    assert not nests_deeper(nested(64), 64)
    assert nests_deeper(nested(65), 64)
    assert not nests_deeper("text", 0)
    assert nests_deeper([[], {"a": [1, {"b": []}]}], 4)
