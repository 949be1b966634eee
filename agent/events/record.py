"""What every record of the log is made of."""

import time
from typing import Literal

from pydantic import BaseModel, ConfigDict

Mode = Literal["plan", "ask", "auto", "full"]


def printable(text: str) -> str:
    """A file's name as the log can hold it: bytes that are no UTF-8 are written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def now() -> int:
    """Integer microseconds UTC."""
    return time.time_ns() // 1000


class Record(BaseModel):
    """The data of one event type. Unknown fields are kept: a newer writer may know more."""

    model_config = ConfigDict(extra="allow")


class BlobRef(Record):
    hash: str
    size: int
