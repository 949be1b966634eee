"""A conversation made to fit by code alone: its beginning and its newest steps, calls with their results."""

from collections.abc import Sequence
from typing import Any

from agent.summary.ledger import both_ends
from agent.summary.size import size_of

Message = dict[str, Any]

LEAST_TEXT = 80
"""Characters below which a cut text says nothing."""


def units(messages: Sequence[Message]) -> list[list[Message]]:
    """What may not be torn apart: a message with calls and all their results, or a single message.

    Results without their call, and calls without all their results, are left out: no provider takes them.
    """
    found: list[list[Message]] = []
    index = 0
    while index < len(messages):
        message, index = messages[index], index + 1
        if message["role"] == "tool":
            continue
        unit = [message]
        wanted = {call["id"] for call in message.get("tool_calls") or ()}
        while index < len(messages) and messages[index]["role"] == "tool":
            if messages[index].get("tool_call_id") in wanted:
                wanted.discard(messages[index]["tool_call_id"])
                unit.append(messages[index])
            index += 1
        if not wanted:
            found.append(unit)
        elif message.get("content"):
            found.append([{"role": message["role"], "content": message["content"]}])
    return found


def newest(messages: Sequence[Message], room: int) -> list[Message]:
    """The last units that fit `room` bytes; the very last one is shortened where it does not fit whole."""
    kept: list[Message] = []
    for unit in reversed(units(messages)):
        if size_of(unit) > room:
            if not kept and (cut := shortened_unit(unit, room)) is not None:
                kept = cut
            break
        kept = [*unit, *kept]
        room -= size_of(unit)
    return kept


def fitted(messages: Sequence[Message], room: int) -> list[Message]:
    """A conversation of at most `room` bytes: its first message, what was left out, the newest units."""
    if size_of(messages) <= room or not messages:
        return list(messages)
    first, rest = messages[0], list(messages[1:])
    if first["role"] != "user":
        return newest(messages, room)
    begin = {**first, "content": both_ends(str(first.get("content") or ""), max(LEAST_TEXT, room // 4))}
    kept = newest(rest, room - size_of([begin]) - 100)
    gone = len(rest) - len(kept)
    note = (
        [{"role": "user", "content": f"[{gone} messages were left out here: they did not fit]"}]
        if gone
        else []
    )
    return [begin, *note, *kept]


def shortened_unit(unit: Sequence[Message], room: int) -> list[Message] | None:
    """A unit whose texts are cut so that it takes at most `room` bytes; None where that leaves nothing."""
    bare = [{**message, "content": ""} if message.get("content") else message for message in unit]
    if size_of(bare) + LEAST_TEXT > room:
        bare = [_without_arguments(message) for message in bare]
        unit = [_without_arguments(message) for message in unit]
    texts = sum(bool(message.get("content")) for message in unit)
    each = (room - size_of(bare)) // max(1, texts)
    while each >= LEAST_TEXT:
        cut = [
            {**message, "content": both_ends(str(message["content"]), each)}
            if message.get("content")
            else message
            for message in unit
        ]
        if size_of(cut) <= room:
            return cut
        each = each * 2 // 3  # what JSON escapes takes more bytes than characters
    return None


def _without_arguments(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    bare = [
        {**call, "function": {**call["function"], "arguments": '{"left_out":"too long"}'}} for call in calls
    ]
    return {**message, "tool_calls": bare}
