"""Redaction: everything the model, the log and the clients are given passes here first."""

from tools.redaction.environment import environment_secrets, learn_workspace
from tools.redaction.placeholders import PATTERN
from tools.redaction.redactor import Redactor, UnknownPlaceholder
from tools.redaction.stream import Guard, Stream

__all__ = [
    "PATTERN",
    "Guard",
    "Redactor",
    "Stream",
    "UnknownPlaceholder",
    "environment_secrets",
    "learn_workspace",
]
