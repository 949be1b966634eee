"""An endpoint that misbehaves in every way a model or its server can, the same way for the same seed.

Answers hold random tools with right and wrong arguments, unknown tools, half JSON, many parallel calls,
huge arguments, repeated ids, nothing at all; with `transport`, streams also break, stay silent for a
moment, carry garbage or fail with a status. `python tests/support/chaos_model.py PORT SEED` serves one.
"""

import random
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

if not __package__:  # run by its path: only its own folder is on the path then
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.scripted_model import ScriptedModel
from tests.support.scripted_turns import Turn

FILES = (
    "a.py",
    "b.py",
    "sub/c.py",
    "chaos.txt",
    "missing.py",
    "../outside.txt",
    "/etc/hostname",
    "",
    "\x00",
    "ü.py",
)
COMMANDS = (
    "echo hi",
    "ls",
    "false",
    "exit 3",
    "cat missing",
    "printf 'chaos\\n' >> chaos.txt",
    "seq 1 20000",
    "printf '\\000\\377\\033[2J'",
    "sleep 0.05 & echo started",
    "'unterminated",
)
WORDS = ("one", "two", "def f():", "    return 1", "\t", "ß", "日本", "🙂", "\r\n", "$&", "\\n", "}", "")


class ChaosModel(ScriptedModel):
    """`with ChaosModel(seed) as model`. `kinds` counts what was sent; a turn ends after a few steps."""

    def __init__(
        self,
        seed: int,
        *,
        transport: bool = False,
        files: Sequence[str] = FILES,
        commands: Sequence[str] = COMMANDS,
        stop: float = 0.1,
        huge: int = 5 * 2**20,
        **options: Any,
    ) -> None:
        super().__init__(self._turn, **options)
        self.kinds: dict[str, int] = {}
        self._random = random.Random(seed)
        self._files, self._commands = files, commands
        self._ending, self._huge = stop, huge
        weights = {
            self._calls: 40,
            self._wrong: 15,
            self._half_json: 8,
            self._unknown_tool: 6,
            self._many: 2,
            self._huge_arguments: 1,
            self._repeated_ids: 4,
            self._no_object: 4,
            self._empty: 2,
            self._huge_text: 1,
            self._odd_deltas: 6,
        }
        if transport:
            weights |= {self._breaks: 3, self._garbage: 3, self._status: 4, self._pauses: 2}
        self.ways = list(weights)
        self._weights = list(weights.values())

    def _turn(self, body: dict[str, Any]) -> Turn:
        if self._random.random() < self._ending:
            way: Callable[[list[dict[str, Any]]], Turn] = self._says
        else:
            way = self._random.choices(self.ways, self._weights)[0]
        name = way.__name__.strip("_")
        self.kinds[name] = self.kinds.get(name, 0) + 1
        tools = [tool["function"] for tool in body.get("tools") or () if "function" in tool]
        return way(tools)

    # -- well-formed ----------------------------------------------------------------------------------

    def _says(self, tools: list[dict[str, Any]]) -> Turn:
        return Turn(text=self._text(self._random.randrange(1, 40)))

    def _calls(self, tools: list[dict[str, Any]]) -> Turn:
        calls = [self._call(tools) for _ in range(self._random.choice((1, 1, 1, 2, 3)))]
        return Turn(text=self._text(self._random.randrange(4)), calls=calls)

    def _many(self, tools: list[dict[str, Any]]) -> Turn:
        return Turn(calls=[self._call(tools) for _ in range(40)])

    # -- calls that are wrong -------------------------------------------------------------------------

    def _wrong(self, tools: list[dict[str, Any]]) -> Turn:
        call = self._call(tools)
        arguments = dict(call["arguments"])
        for key in list(arguments) or ["path"]:
            if self._random.random() < 0.6:
                arguments[key] = self._anything()
        if self._random.random() < 0.3:
            arguments["surprise"] = self._anything()
        if arguments and self._random.random() < 0.3:
            arguments.pop(self._random.choice(list(arguments)))
        return Turn(calls=[{**call, "arguments": arguments}])

    def _half_json(self, tools: list[dict[str, Any]]) -> Turn:
        call = self._call(tools)
        raw = orjson.dumps(call["arguments"]).decode()
        cut = raw[: self._random.randrange(len(raw))]
        return Turn(
            calls=[
                {
                    "name": call["name"],
                    "raw": self._random.choice((cut, raw + raw, cut + "\\ud800", "{" * 2000)),
                }
            ]
        )

    def _unknown_tool(self, tools: list[dict[str, Any]]) -> Turn:
        name = self._random.choice(("rm_rf", "", "read ", "Read", "functions.read", "日本", "x" * 300))
        return Turn(calls=[{"name": name, "arguments": {"path": "a.py"}}])

    def _huge_arguments(self, tools: list[dict[str, Any]]) -> Turn:
        call = self._call(tools)
        key = next(iter(call["arguments"]), "path")
        return Turn(calls=[{**call, "arguments": {**call["arguments"], key: "x" * self._huge}}])

    def _repeated_ids(self, tools: list[dict[str, Any]]) -> Turn:
        return Turn(calls=[{**self._call(tools), "id": "call_0"} for _ in range(3)])

    def _no_object(self, tools: list[dict[str, Any]]) -> Turn:
        raw = self._random.choice(("", "null", "[]", '"text"', "3", "[1, 2]", "NaN", "{}", " "))
        return Turn(calls=[{"name": self._call(tools)["name"], "raw": raw}])

    # -- answers that are odd -------------------------------------------------------------------------

    def _empty(self, tools: list[dict[str, Any]]) -> Turn:
        return Turn(finish=self._random.choice(("stop", "tool_calls", "content_filter", "whatever")))

    def _huge_text(self, tools: list[dict[str, Any]]) -> Turn:
        return Turn(text="lorem ipsum " * (self._huge // 60), chunk=8192)

    def _odd_deltas(self, tools: list[dict[str, Any]]) -> Turn:
        call = self._call(tools)
        function = {"name": call["name"], "arguments": call["arguments"]}
        whole = {"function": {**function, "arguments": orjson.dumps(call["arguments"]).decode()}}
        fragments: list[Mapping[str, Any]] = self._random.choice(
            (
                [{"function": function}],
                [{"id": "a", **whole}, {"id": "b", **whole}],
                [{"index": 0, "id": "a", **whole}, {"index": 0, "id": "b", **whole}],
                [{"index": None, "id": None, "type": None, **whole}],
                [{"index": 7}, {"index": "x", "function": "not an object"}, {"id": 3}],
            )
        )
        return Turn(
            deltas=[{"content": None, "tool_calls": [fragment]} for fragment in fragments],
            finish="tool_calls",
        )

    # -- a server that fails --------------------------------------------------------------------------

    def _breaks(self, tools: list[dict[str, Any]]) -> Turn:
        return Turn(text=self._text(10), die_after=self._random.randrange(8))

    def _garbage(self, tools: list[dict[str, Any]]) -> Turn:
        garbage = self._random.choice(
            ("data: {half\n\n", "data: [1]\n\n", "\udcff\udcfe\n\n", "data: \n\n", "<html>\n")
        )
        return Turn(text=self._text(5), garbage=garbage, garbage_after=self._random.randrange(3))

    def _status(self, tools: list[dict[str, Any]]) -> Turn:
        return Turn(status=self._random.choice((429, 500, 502, 503)), headers={"retry-after-ms": "5"})

    def _pauses(self, tools: list[dict[str, Any]]) -> Turn:
        return Turn(text=self._text(4), delay_ms=30)

    # -- material -------------------------------------------------------------------------------------

    def _call(self, tools: list[dict[str, Any]]) -> dict[str, Any]:
        if not tools:
            return {"name": "read", "arguments": {"path": self._random.choice(self._files)}}
        tool = self._random.choice(tools)
        return {"name": tool["name"], "arguments": self._value(tool.get("parameters") or {}, tool["name"])}

    def _value(self, schema: Mapping[str, Any], name: str) -> Any:
        """A value that fits a JSON schema (its types, not its limits)."""
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            return self._value(self._random.choice(options), name)
        match schema.get("type"):
            case "object" if "properties" in schema:
                required = set(schema.get("required") or ())
                return {
                    key: self._value(item, key)
                    for key, item in schema["properties"].items()
                    if key in required or self._random.random() < 0.3
                }
            case "array":
                return [
                    self._value(schema.get("items") or {}, name) for _ in range(self._random.randrange(1, 3))
                ]
            case "integer":
                return self._random.choice((0, 1, 2, 10, 1000, -1))
            case "number":
                return self._random.choice((0.5, 1, 5))
            case "boolean":
                return self._random.random() < 0.5
            case _ if "path" in name or name in ("source", "target", "cwd"):
                return self._random.choice(self._files)
            case _ if name == "command":
                return self._random.choice(self._commands)
            case _:
                return self._random.choice(WORDS)

    def _anything(self) -> Any:
        return self._random.choice(
            (
                None,
                True,
                -1,
                10**18,
                1.5,
                "",
                "\x00",
                [],
                [[]],
                {},
                {"a": {"b": []}},
                "x" * 5000,
                list(range(300)),
            )
        )

    def _text(self, words: int) -> str:
        return " ".join(self._random.choice(WORDS) for _ in range(words))


if __name__ == "__main__":
    with ChaosModel(int(sys.argv[2]), port=int(sys.argv[1])) as served:
        print(served.port, flush=True)
        threading.Event().wait()
