"""The shape every tool has: a name, a schema and a docstring for the model, a proposal, a run."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from tools.errors import InvalidArguments
from tools.result import Proposal, ToolResult

if TYPE_CHECKING:
    from tools.workspace import Workspace

Kind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"]
"""The tool kinds of the Agent Client Protocol."""

Progress = Callable[[str], None]
"""Receives live output as it comes; synchronous, cheap, never raises."""


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL characters")
    return text


ProgramText = Annotated[str, AfterValidator(_without_nul)]
"""Text that is handed to a program as an argument, where a NUL would end it."""


class Arguments(BaseModel):
    """Arguments of a tool call. Unknown fields are refused with the list of known ones."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)


class Tool(ABC):
    """One thing that can be done to a workspace. The class docstring is the description the model sees."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    read_only: ClassVar[bool] = False
    outside: ClassVar[bool] = False
    """Whether it acts outside the workspace and its sandbox."""
    Arguments: ClassVar[type[Arguments]]

    @abstractmethod
    async def propose(self, arguments: Any, workspace: "Workspace") -> Proposal:
        """Check the call against the workspace without changing anything.

        Raises:
            ToolError: the call cannot succeed; nothing needs to be approved.
        """

    @abstractmethod
    async def run(self, arguments: Any, workspace: "Workspace", progress: Progress) -> ToolResult:
        """Do it. Either it is done wholly or a `ToolError` is raised and the workspace is unchanged."""

    @classmethod
    def description(cls) -> str:
        return inspect.cleandoc(cls.__doc__ or "")

    @classmethod
    def schema(cls, brief: bool = False) -> dict[str, Any]:
        """The function definition sent to the model, in the chat-completions format."""
        parameters = _plain(cls.Arguments.model_json_schema())
        description = cls.description()
        if brief:
            description = description.split("\n", 1)[0]
            parameters = _without_details(parameters)
        function = {"name": cls.name, "description": description, "parameters": parameters}
        return {"type": "function", "function": function}

    @classmethod
    def parse(cls, raw: str) -> Any:
        """Arguments from the model's JSON text.

        Raises:
            InvalidArguments: with every problem named, for the model to repair the call.
        """
        try:
            value = orjson.loads(raw or "{}")
        except orjson.JSONDecodeError as error:
            raise InvalidArguments(
                f"The arguments of {cls.name} are not valid JSON ({error}). Send one JSON object."
            ) from error
        if not isinstance(value, dict):
            raise InvalidArguments(
                f"The arguments of {cls.name} must be a JSON object, got {type(value).__name__}."
            )
        try:
            return cls.Arguments.model_validate(value)
        except ValidationError as error:
            known = ", ".join(cls.Arguments.model_fields)
            problems = "; ".join(
                f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {_problem(item)}"
                for item in error.errors(include_url=False, include_input=False, include_context=False)
            )
            raise InvalidArguments(
                f"{cls.name} was called with invalid arguments: {problems}. Known fields: {known}."
            ) from error


def _problem(item: Any) -> str:
    return "unknown field" if item["type"] == "extra_forbidden" else str(item["msg"])


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema without titles and with `$defs` written in place: small models read it better."""
    definitions = schema.pop("$defs", {})

    def walk(node: Any, is_properties: bool = False) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return walk(definitions[node["$ref"].rsplit("/", 1)[-1]])
        if not is_properties and "anyOf" in node:
            options = [option for option in node["anyOf"] if option != {"type": "null"}]
            if len(options) == 1:
                rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
                return walk({**options[0], **rest})
        return {
            key: walk(value, is_properties=key == "properties")
            for key, value in node.items()
            if is_properties or key not in ("title", "default")
            if not (key == "description" and not is_properties and "properties" in node)
        }

    return walk(schema)


_DETAILS = frozenset(
    ("description", "additionalProperties", "minimum", "maximum", "exclusiveMinimum", "minLength", "minItems")
)


def _without_details(node: Any) -> Any:
    """Names and types only: bounds are checked when the call is made, and said then."""
    if isinstance(node, list):
        return [_without_details(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_details(value)
        for key, value in node.items()
        if key not in _DETAILS or isinstance(value, dict)
    }
