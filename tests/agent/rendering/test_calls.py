"""Calls keep the argument text as the model wrote it."""

import pytest

from agent.rendering.calls import fenced, tagged


@pytest.mark.parametrize(
    ("body", "name", "arguments"),
    [
        ('{"name": "read", "arguments": {"path": "a",  "start": 1}}', "read", '{"path": "a",  "start": 1}'),
        ('\n{"arguments": {"p": "}"}, "name": "read"}\n', "read", '{"p": "}"}'),
        ('{"name": "read", "parameters": {"p": 1}}', "read", '{"p": 1}'),
        ('{"name": "read", "arguments": "{\\"p\\": 1}"}', "read", '{"p": 1}'),
        ('{"name": "now"}', "now", "{}"),
        ('{"name": "edit", "arguments": {"old": "a\nb"}}', "edit", '{"old": "a\nb"}'),
        ('{"name": "read", "arguments": {"p": }', "read", '{"name": "read", "arguments": {"p": }'),
        ('{"name": "read"} trailing', "read", '{"name": "read"} trailing'),
        ("read it", "", "read it"),
        ("", "", ""),
        ("[" * 5000, "", "[" * 5000),
    ],
)
def test_a_tagged_call(body: str, name: str, arguments: str) -> None:
    call = tagged(body)
    assert (call.name, call.arguments) == (name, arguments)


def test_ids_differ() -> None:
    assert tagged('{"name": "a"}').id != tagged('{"name": "a"}').id


@pytest.mark.parametrize(
    "body",
    ['{"name": "Bob"}', '{"a": 1}', '["read"]', '{"name": "read"', '{"name": 3}', "", '{"name" "read"}'],
)
def test_other_json_in_a_fence_is_no_call(body: str) -> None:
    assert fenced(body, {"read"}) is None
