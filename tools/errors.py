"""Errors of the tools room: each says what happened, what was expected and what to do."""

from typing import Any, Literal

ErrorClass = Literal["invalid_arguments", "environment", "provider", "aborted", "timeout", "unknown"]
"""Why a tool call failed. `unknown` means a defect of ours."""


class ToolError(Exception):
    """A tool call that could not be done; the workspace is unchanged.

    `message` is written for the model: what happened, what was expected, what to do next.
    `data` holds structured facts for the log (never needed to understand the message).
    """

    error_class: ErrorClass = "environment"

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema or cannot mean anything in this workspace."""

    error_class: ErrorClass = "invalid_arguments"


class EnvironmentFault(ToolError):
    """The machine failed the tool: no space, sandbox died, permission denied."""

    error_class: ErrorClass = "environment"


class ToolTimeout(ToolError):
    """The tool did not finish within its deadline."""

    error_class: ErrorClass = "timeout"


class OutsideWorkspace(InvalidArguments):
    """A path leads outside the workspace, directly or through a symbolic link."""
