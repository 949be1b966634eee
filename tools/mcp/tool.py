"""One tool of an MCP server, with the shape of our own tools."""

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson
from pydantic import ConfigDict

from tools.errors import InvalidArguments
from tools.excerpt import excerpt
from tools.mcp.connection import McpConnection
from tools.mcp.spec import callable_name
from tools.output import clean
from tools.result import Proposal, ToolResult
from tools.tool import Arguments, Kind, Progress, Tool
from tools.workspace import Workspace

if TYPE_CHECKING:
    from mcp.types import CallToolResult
    from mcp.types import Tool as Definition

_LONGEST_NAME: Final = 64
_LONGEST_DESCRIPTION: Final = 4_000
_LARGEST_SCHEMA: Final = 16_384


class McpArguments(Arguments):
    """Whatever the server's own schema allows."""

    model_config = ConfigDict(extra="allow", frozen=True)


class McpTool(Tool):
    """A tool that acts outside the sandbox, in a program that the user chose."""

    kind: ClassVar[Kind] = "other"
    outside: ClassVar[bool] = True
    Arguments = McpArguments
    connection: ClassVar[McpConnection]
    remote: ClassVar[str]
    parameters: ClassVar[dict[str, Any]]

    async def propose(self, arguments: McpArguments, workspace: Workspace) -> Proposal:
        shown = orjson.dumps(arguments.model_dump(), default=str).decode()
        return Proposal(f"{self.connection.spec.name}: {self.remote} {excerpt(shown, 400)[0]}")

    async def run(self, arguments: McpArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        result = await self.connection.call(self.remote, arguments.model_dump(), progress)
        whole = clean(_text(result))
        text, clipped = excerpt(whole, workspace.output_limit)
        return ToolResult(
            text=text or "(no output)",
            full=whole.encode("utf-8", "replace") if clipped else None,
            data={"server": self.connection.spec.name, "tool": self.remote, "truncated": clipped},
            error="environment" if result.is_error else None,
        )

    @classmethod
    def schema(cls, brief: bool = False) -> dict[str, Any]:
        description = cls.description()
        if brief:
            description = description.split("\n", 1)[0][:200]
        function = {"name": cls.name, "description": description, "parameters": copy.deepcopy(cls.parameters)}
        return {"type": "function", "function": function}

    @classmethod
    def parse(cls, raw: str) -> Any:
        arguments = super().parse(raw)
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            problems = list(Draft202012Validator(cls.parameters).iter_errors(arguments.model_dump()))
        except (SchemaError, RecursionError):  # the server will say itself what it takes
            return arguments
        if problems:
            said = "; ".join(
                f"{'.'.join(map(str, problem.path)) or 'arguments'}: {problem.message[:300]}"
                for problem in problems[:5]
            )
            raise InvalidArguments(f"{cls.name} was called with invalid arguments: {said}.")
        return arguments


def offered(connection: McpConnection, definitions: "list[Definition]") -> dict[str, Tool]:
    """Tools by the name the model calls them: `mcp__SERVER__TOOL`, shortened and made unique."""
    tools: dict[str, Tool] = {}
    for definition in definitions:
        stem = f"mcp__{connection.spec.prefix}__{callable_name(definition.name)}"[:_LONGEST_NAME]
        name, number = stem, 2
        while name in tools:
            name = f"{stem[: _LONGEST_NAME - 3]}_{number}"
            number += 1
        parameters = definition.input_schema
        if len(orjson.dumps(parameters, default=str)) > _LARGEST_SCHEMA:
            parameters = {"type": "object"}
        shape = {
            "name": name,
            "__doc__": excerpt(clean(definition.description or definition.name), _LONGEST_DESCRIPTION)[0],
            "connection": connection,
            "remote": definition.name,
            "parameters": parameters,
        }
        tools[name] = type("McpTool", (McpTool,), shape)()
    return tools


def _text(result: "CallToolResult") -> str:
    """What the model can read of an answer; the rest is named."""
    parts: list[str] = []
    for block in result.content:
        match block.type:
            case "text":
                parts.append(block.text)
            case "image" | "audio":
                size = len(block.data) * 3 // 4
                parts.append(f"[{block.type} {block.mime_type}, {size:,} bytes: not shown]")
            case "resource":
                text = getattr(block.resource, "text", None)
                where = str(block.resource.uri)
                parts.append(f"[{where}]\n{text}" if text is not None else f"[{where}: not text, not shown]")
            case "resource_link":
                parts.append(f"[{block.uri}] {block.description or block.name or ''}".rstrip())
    if not parts and result.structured_content is not None:
        parts.append(orjson.dumps(result.structured_content, default=str).decode())
    return "\n".join(parts)
