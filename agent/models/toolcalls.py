"""Tool calls put together from their fragments, in the ways that endpoints send them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from agent.events import Call


@dataclass(slots=True)
class _Slot:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON value."""
        if not self.arguments[-1].rstrip().endswith(("}", "]", '"', "null")):
            return False
        try:
            orjson.loads("".join(self.arguments))
        except orjson.JSONDecodeError:
            return False
        return True


class CallAssembly:
    """Collects fragments `{index?, id?, function: {name?, arguments?}}`.

    The protocol gives each call an index and its id and name once. Also understood: no index, no id, an
    id or a name repeated with every fragment, index 0 for every call, whole calls in one fragment, and
    arguments as an object instead of text.
    """

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, part: Mapping[str, Any]) -> int:
        """Take one fragment; returns the characters that it brought."""
        function = part.get("function")
        if not isinstance(function, Mapping):
            function = part
        id, name, index = _text(part.get("id")), _text(function.get("name")), part.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            index = None
        arguments = function.get("arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = orjson.dumps(arguments).decode()
        slot = self._find(index, id, name, bool(arguments))
        if slot is None:
            slot = _Slot()
            self._slots.append(slot)
        if index is not None:
            self._by_index[index] = slot
        if id:
            slot.id = slot.id or id
            self._by_id[id] = slot
        if name and name != slot.name:
            # Names come whole; those that come in pieces come before the arguments.
            slot.name = name if name.startswith(slot.name) else slot.name + name
        if arguments:
            slot.arguments.append(arguments)
        return len(arguments) + len(name) + 1

    def _find(self, index: int | None, id: str, name: str, arguments: bool) -> _Slot | None:
        """The call that a fragment goes on with; None when it begins another."""
        if not self._slots:
            return None
        if index is not None:
            slot = self._by_index.get(index)
        elif id:
            slot = self._by_id.get(id) or (None if name else self._slots[-1])
        else:
            slot = self._slots[-1]
        if slot is None or not name:
            return slot
        other_id = bool(id and slot.id and id != slot.id)
        anonymous = index is None and not id
        if slot.arguments:
            # A name after a whole value: another call in the same place.
            return None if (arguments or other_id or anonymous) and slot.complete() else slot
        return None if name != slot.name and (other_id or anonymous) else slot

    def calls(self) -> list[Call]:
        """The calls in order, with the endpoint's own ids; a missing one is made up."""
        return [
            Call(id=slot.id or f"call_{i}", name=slot.name, arguments="".join(slot.arguments))
            for i, slot in enumerate(self._slots)
        ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
