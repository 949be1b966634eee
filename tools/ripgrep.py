"""Running ripgrep: its matches as they come, in bounded memory, without its configuration or ours."""

import asyncio
import base64
import shutil
import sys
import sysconfig
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from tools.errors import EnvironmentFault

MAX_RECORD: Final = 8 * 1024 * 1024
"""Bytes of one record (a line and its matches) that are parsed; a longer one is only counted."""
LINE_KEPT: Final = 400
LEAD: Final = 120
"""Bytes of a long line that are kept, and how many of them stand before the match."""
CHUNK: Final = 1 << 16
ERRORS_KEPT: Final = 16_384


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file without its ending; of a long one only the part around its first match.

    `offset` is where `data` lies in the file; `before` and `after` are the bytes of the line left out.
    """

    number: int
    data: bytes
    offset: int
    is_match: bool
    before: int = 0
    after: int = 0


@dataclass(slots=True)
class FileMatches:
    """What was found in one file, in order. `path` is as ripgrep names it. `binary`: it holds NUL bytes.

    `content` is the file's where it was read by ourselves, through a confined descriptor.
    """

    path: str
    lines: list[Line] = field(default_factory=list)
    matches: int = 0
    binary: bool = False
    content: bytes | None = None


@dataclass(slots=True)
class Outcome:
    """How a search ended: exit status (None where it was stopped early), complaints, lines over size."""

    status: int | None = None
    errors: str = ""
    oversize: int = 0


@cache
def binary() -> Path:
    """The ripgrep program that was installed with Etude.

    Raises:
        EnvironmentFault: there is none.
    """
    folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for folder in folders:
        if (folder / "rg").is_file():
            return folder / "rg"
    elsewhere = shutil.which("rg")
    if elsewhere is None:
        raise EnvironmentFault("ripgrep is not installed. Install it with: pip install ripgrep==14.1.0")
    return Path(elsewhere)


async def search(
    arguments: Sequence[str], descriptors: Sequence[int], outcome: Outcome, folder: str = "/"
) -> AsyncGenerator[FileMatches, None]:
    """The files with matches, each when it is complete. Leaving the iterator ends the process.

    `arguments` follow ours (machine-readable output, no configuration, no link followed); `descriptors` are
    those that they or `folder`, in which the process runs, name below /proc/self/fd. `outcome` is filled when
    the iterator ends. The process gets an empty environment.
    """
    process = await asyncio.create_subprocess_exec(
        str(binary()),
        "--no-config",
        "--json",
        "--no-follow",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={"LC_ALL": "C.UTF-8"},
        pass_fds=descriptors,
    )
    assert process.stdout is not None and process.stderr is not None
    complaints = asyncio.create_task(_bounded(process.stderr))
    try:
        current: FileMatches | None = None
        async for record in _records(process.stdout):
            if record is None:
                outcome.oversize += 1
                continue
            body = record["data"]
            match record["type"]:
                case "begin":
                    current = FileMatches(_name(body["path"]))
                case "match" | "context" if current is not None:
                    current.lines += _lines(body, record["type"] == "match")
                    current.matches += record["type"] == "match"
                case "end" if current is not None:
                    current.binary = body.get("binary_offset") is not None
                    yield current
                    current = None
        outcome.status = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            while await process.stdout.read(CHUNK):
                pass  # a pipe that is not read to its end stays open
        outcome.errors = await complaints


async def _bounded(stream: asyncio.StreamReader) -> str:
    """The beginning of a stream; the rest is read and dropped, so that the writer never waits."""
    kept = b""
    while chunk := await stream.read(CHUNK):
        kept = (kept + chunk)[:ERRORS_KEPT]
    return kept.decode("utf-8", "replace")


async def _records(stream: asyncio.StreamReader) -> AsyncIterator[dict[str, Any] | None]:
    """One JSON object per line; None for one that is too large to be looked at."""
    held: list[bytes] = []
    size = 0
    while chunk := await stream.read(CHUNK):
        head, *rest = chunk.split(b"\n")
        for piece, ends in [(head, bool(rest)), *((p, i < len(rest) - 1) for i, p in enumerate(rest))]:
            size += len(piece)
            if size <= MAX_RECORD:
                held.append(piece)
            if ends:
                yield orjson.loads(b"".join(held)) if size <= MAX_RECORD else None
                held, size = [], 0


def _lines(body: dict[str, Any], is_match: bool) -> list[Line]:
    """The lines of a record: several where the pattern spans lines."""
    data = _bytes(body["lines"])
    found = body["submatches"][0]["start"] if body["submatches"] else 0
    lines: list[Line] = []
    number, at = body["line_number"], 0
    for line in data.removesuffix(b"\n").split(b"\n"):
        plain = line.removesuffix(b"\r")
        before = 0
        if len(plain) > LINE_KEPT:
            before = max(min(found - at - LEAD, len(plain) - LINE_KEPT), 0)
        kept = plain[before : before + LINE_KEPT]
        after = len(plain) - before - len(kept)
        lines.append(Line(number, kept, body["absolute_offset"] + at + before, is_match, before, after))
        number, at = number + 1, at + len(line) + 1
    return lines


def _bytes(value: dict[str, str]) -> bytes:
    return base64.b64decode(value["bytes"]) if "bytes" in value else value["text"].encode()


def _name(value: dict[str, str]) -> str:
    return _bytes(value).decode("utf-8", "surrogateescape")
