"""Tool calls in the ways that endpoints send them."""

from typing import Any

import pytest

from agent.models.toolcalls import CallAssembly


def part(
    arguments: Any = None, name: str | None = None, id: str | None = None, index: int | None = None
) -> Any:
    """A fragment; what is None is left out."""
    function = {key: item for key, item in (("name", name), ("arguments", arguments)) if item is not None}
    return {
        key: item for key, item in (("index", index), ("id", id), ("function", function)) if item is not None
    }


A, B = '{"path": "a"}', '{"path": "b"}'

WAYS: dict[str, list[dict[str, Any]]] = {
    "by the protocol": [
        part("", "read", "x", 0),
        part('{"path"', index=0),
        part(': "a"}', index=0),
        part("", "grep", "y", 1),
        part(B, index=1),
    ],
    "interleaved": [
        part("", "read", "x", 0),
        part("", "grep", "y", 1),
        part('{"path"', index=0),
        part('{"path": "b', index=1),
        part(': "a"}', index=0),
        part('"}', index=1),
    ],
    "whole calls in one fragment": [part(A, "read", "x", 0), part(B, "grep", "y", 1)],
    "without an index": [part(A, "read", "x"), part(B, "grep", "y")],
    "without an index, in pieces": [
        part("", "read", "x"),
        part('{"path"'),
        part(': "a"}'),
        part("", "grep", "y"),
        part(B),
    ],
    "without index or id": [part(A, "read"), part(B, "grep")],
    "without index or id, in pieces": [
        part("", "read"),
        part('{"path": '),
        part('"a"}'),
        part("", "grep"),
        part(B),
    ],
    "index 0 for every call": [
        part("", "read", "x", 0),
        part(A, index=0),
        part("", "grep", "y", 0),
        part(B, index=0),
    ],
    "index 0 for every whole call": [part(A, "read", "x", 0), part(B, "grep", "y", 0)],
    "index 0 and no id for every whole call": [part(A, "read", index=0), part(B, "grep", index=0)],
    "id and name repeated": [
        part('{"path"', "read", "x", 0),
        part(': "a"}', "read", "x", 0),
        part('{"path": ', "grep", "y", 1),
        part('"b"}', "grep", "y", 1),
    ],
    "id repeated without an index": [
        part('{"path"', "read", "x"),
        part(': "a"}', None, "x"),
        part(B, "grep", "y"),
    ],
    "a new id with every fragment": [
        part("", "read", "x", 0),
        part('{"path"', "read", "x1", 0),
        part(': "a"}', "read", "x2", 0),
        part(B, "grep", "y", 1),
    ],
    "arguments as an object": [part({"path": "a"}, "read", "x", 0), part({"path": "b"}, "grep", "y", 1)],
    "a name in pieces": [
        part("", "re", "x", 0),
        part("", "ad", None, 0),
        part(A, index=0),
        part(B, "grep", "y", 1),
    ],
    "fields without meaning": [
        part(A, "read", "x", 0),
        {"index": 0},
        {"index": 0, "function": None},
        {"index": 0, "id": "", "function": {"name": "", "arguments": ""}},
        part(B, "grep", "y", 1),
    ],
}


@pytest.mark.parametrize("way", WAYS)
def test_two_calls(way: str) -> None:
    assembly = CallAssembly()
    for fragment in WAYS[way]:
        assembly.add(fragment)
    calls = assembly.calls()
    assert [(call.name, call.arguments.replace(" ", "")) for call in calls] == [
        ("read", A.replace(" ", "")),
        ("grep", B.replace(" ", "")),
    ]
    assert len({call.id for call in calls}) == 2


def test_the_same_call_twice_in_one_place_is_two_calls() -> None:
    assembly = CallAssembly()
    assembly.add(part(A, "read", index=0))
    assembly.add(part(A, "read", index=0))
    assert len(assembly.calls()) == 2


def test_two_calls_without_arguments() -> None:
    assembly = CallAssembly()
    assembly.add(part("", "list", "x", 0))
    assembly.add(part("", "todo", "y", 0))
    assert [call.name for call in assembly.calls()] == ["list", "todo"]


def test_ids_are_the_endpoints_own() -> None:
    """Repeated ids are kept: whoever pairs calls with results gives them ids of its own."""
    assembly = CallAssembly()
    assembly.add(part(A, "read", "same", 0))
    assembly.add(part(B, "read", "same", 1))
    assert [call.id for call in assembly.calls()] == ["same", "same"]


def test_broken_arguments_are_kept_as_they_are() -> None:
    assembly = CallAssembly()
    assembly.add(part('{"path": "a', "read", "x", 0))
    assert assembly.calls()[0].arguments == '{"path": "a'


def test_fragments_that_are_no_calls_do_no_harm() -> None:
    assembly = CallAssembly()
    for fragment in ({}, {"function": "text"}, {"index": "0", "id": 5, "function": {"name": None}}):
        assembly.add(fragment)
    assert [(call.name, call.arguments) for call in assembly.calls()] == [("", "")]
