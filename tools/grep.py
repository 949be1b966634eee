"""The `grep` tool: lines that match a pattern, in the whole workspace or a part of it."""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import Field

from tools.confinement import locate, workspace_path
from tools.contents import missing
from tools.encodings import Binary
from tools.errors import EnvironmentFault, InvalidArguments, ToolError, ToolTimeout
from tools.files import Entry, explained, open_file, read_bytes, stat
from tools.ignored_above import ignored_above
from tools.indexed_grep import Candidates, Reading, candidates, matches_in
from tools.patterns import Needed, needed
from tools.result import Proposal, ToolResult
from tools.ripgrep import FileMatches, Line, Outcome, search
from tools.text import Text, visible
from tools.tool import Arguments, ProgramText, Progress, Tool
from tools.workspace import Workspace

MATCHES: Final = 100
MAX_CONTEXT: Final = 20
DEADLINE: Final = 30.0
"""Seconds after which a search is stopped and what it found is shown as incomplete."""

CONTENT_KEPT: Final = 16_000_000
"""Bytes of files with matches that are kept until they are shown."""

_SPECIAL: Final = re.compile(r"([\\.+*?()|\[\]{}^$])")
_PROC: Final = "/proc/self/fd"
HERE: Final = "."


class GrepArguments(Arguments):
    pattern: ProgramText = Field(min_length=1, description="Regular expression (Rust syntax).")
    path: str | None = Field(None, description="Folder or file to search, relative to the workspace.")
    glob: ProgramText | None = Field(None, description="Only such files, as in *.py; !*.py leaves them out.")
    context: int | None = Field(None, ge=0, le=MAX_CONTEXT, description="Lines shown around each match.")
    ignore_case: bool | None = None
    limit: int | None = Field(None, ge=1, le=1000, description=f"Most matches shown (default {MATCHES}).")


@dataclass(slots=True)
class _Hits:
    """What was found so far, and what is known to be missing."""

    room: int
    files: list[FileMatches] = field(default_factory=list)
    matches: int = 0
    size: int = 0
    binary: int = 0
    changed: int = 0
    stopped: str | None = None

    def take(self, found: FileMatches, limit: int) -> bool:
        """Add a file; False where nothing more fits."""
        if found.binary:
            self.binary += 1
            return True
        room = limit - self.matches
        if found.matches > room:
            found.lines = _first(found.lines, room)
            found.matches = room
            self.stopped = f"first {limit} matches"
        lines = _fitting(found.lines, self.room - self.size)
        if len(lines) < len(found.lines):
            found.lines = lines
            found.matches = sum(line.is_match for line in lines)
            self.stopped = f"first {self.room // 1000} kB"
        self.files.append(found)
        self.matches += found.matches
        self.size += len(found.path) + sum(len(line.data) + 8 for line in found.lines)
        if self.stopped is None and self.size > self.room:
            self.stopped = f"first {self.room // 1000} kB"
        return self.stopped is None


class Grep(Tool):
    """Search the files of the workspace with a regular expression.

    Answers path, then line number and text of each match. Files that git ignores are left out, hidden ones
    are not. To search text literally, escape its special characters.
    """

    name = "grep"
    kind = "search"
    read_only = True
    Arguments = GrepArguments

    async def propose(self, arguments: GrepArguments, workspace: Workspace) -> Proposal:
        await asyncio.to_thread(_start, arguments, workspace)
        where = f" in {arguments.path}" if arguments.path else ""
        return Proposal(f"Search {visible(arguments.pattern, 60)}{where}", (arguments.path or ".",))

    async def run(self, arguments: GrepArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        start = await asyncio.to_thread(_start, arguments, workspace)
        hits, outcome = _Hits(workspace.output_limit), Outcome()
        wanted = Needed() if arguments.glob else needed(arguments.pattern, bool(arguments.ignore_case))
        known = await candidates(workspace.index, start, wanted)
        if known is not None and wanted.exact:
            await asyncio.to_thread(_look, arguments, workspace.root, wanted.literals[0], known, hits)
        own = len(hits.files)
        with _opened(workspace.root, start) as (descriptor, folder, given):
            places = _places(known, wanted, hits, start, given)
            if places:
                above = None
                if places == [given] and start.kind == "directory" and start.path != ".":
                    above = await asyncio.to_thread(ignored_above, workspace.root, start.path)
                with _inherited(above) as (rules, more):
                    flags = [*rules, *_flags(arguments, start, given), *places]
                    found = search(flags, (descriptor, *more), outcome, folder)
                    await _collect(found, arguments.limit or MATCHES, hits)
        _check(arguments, outcome, hits)
        for found in hits.files[own:]:
            found.path = _named(found.path, given, start)
        hits.files.sort(key=lambda found: found.path)
        body, clipped = await asyncio.to_thread(_verified, workspace.root, hits)
        notes = _notes(arguments, workspace, hits, outcome, clipped)
        return ToolResult(
            "\n".join([*body, f"({'; '.join(notes)})"]) if notes else "\n".join(body),
            data={
                "matches": hits.matches,
                "files": len(hits.files),
                "incomplete": hits.stopped is not None,
                "clipped": clipped,
            },
        )


def _start(arguments: GrepArguments, workspace: Workspace) -> Entry:
    path = arguments.path or "."
    entry = stat(workspace.root, path)
    if entry is None:
        raise missing(workspace, path)
    if entry.kind not in ("file", "directory"):
        raise InvalidArguments(f"{entry.path} is a {entry.kind}; search a folder or a regular file.")
    return entry


@contextmanager
def _opened(root: Path, start: Entry) -> Iterator[tuple[int, str, str]]:
    """A descriptor of the folder or file to search, the folder in which ripgrep is to run, and the path it
    gets. Both stay with what was opened, whatever is swapped in at its name.

    To run in the folder is much quicker than to name its descriptor in the path of each file.
    """
    if start.kind == "file":
        with open_file(root, start.path) as (descriptor, _):
            yield descriptor, "/", _path_of(root, start, descriptor)
        return
    with explained(start.path), locate(root, start.path) as place:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(place.name, flags, dir_fd=place.directory)
    try:
        yield descriptor, _path_of(root, start, descriptor), HERE
    finally:
        os.close(descriptor)


def _path_of(root: Path, start: Entry, descriptor: int) -> str:
    return f"{_PROC}/{descriptor}" if os.path.exists(_PROC) else str(root / start.path)


@contextmanager
def _inherited(rules: bytes | None) -> Iterator[tuple[list[str], list[int]]]:
    """Flags that make ripgrep heed rules of folders above as they are meant; descriptors that these name."""
    if rules is None or not os.path.exists(_PROC):
        yield [], []
        return
    with tempfile.TemporaryFile() as file:
        file.write(rules)
        file.flush()
        named = f"{_PROC}/{file.fileno()}"
        yield ["--no-ignore-parent", "--no-require-git", f"--ignore-file={named}"], [file.fileno()]


def _look(arguments: GrepArguments, root: Path, literal: bytes, known: Candidates, hits: _Hits) -> None:
    """Find a literal in the files that may hold it; what is left to ripgrep is added to `known.others`."""
    limit = arguments.limit or MATCHES
    kept = 0
    until = time.monotonic() + DEADLINE
    with explained("."), Reading(root) as reading:
        for path in known.paths:
            try:
                found = matches_in(reading, path, literal, limit + 1, arguments.context or 0)
            except ToolError:
                found = None
            if found is None:
                known.others.append(path)
            elif found.matches:
                kept += len(found.content or b"")
                if kept > CONTENT_KEPT:
                    found.content = None  # it is read again when it is shown
                if not hits.take(found, limit):
                    return
            if time.monotonic() > until:
                hits.stopped = f"stopped after {DEADLINE:.0f} s"
                return


def _places(known: Candidates | None, wanted: Needed, hits: _Hits, start: Entry, given: str) -> list[str]:
    """What ripgrep is to search; nothing where all is found already."""
    if known is None:
        return [given]
    if hits.stopped:
        return []
    paths = known.others if wanted.exact else [*known.paths, *known.others]
    if not paths:
        # Without a file, ripgrep still says whether the expression is one.
        return [] if wanted.exact else [os.devnull]
    below = 0 if start.path == "." else len(start.path) + 1
    return [f"{given}/{path[below:]}" for path in paths]


def _flags(arguments: GrepArguments, start: Entry, given: str) -> list[str]:
    limit = arguments.limit or MATCHES
    flags = ["--hidden", "--line-number", f"--max-count={limit + 1}", f"--context={arguments.context or 0}"]
    if arguments.ignore_case:
        flags.append("--ignore-case")
    if "\n" in arguments.pattern or r"\n" in arguments.pattern:
        flags.append("--multiline")
    for glob in _globs(arguments.glob, start, given) if arguments.glob else ():
        flags.append(f"--glob={glob}")
    return [*flags, "--glob=!.git", f"--regexp={arguments.pattern}", "--"]


def _globs(glob: str, start: Entry, given: str) -> list[str]:
    """A glob with a folder in it is relative to the searched folder, or to the workspace."""
    mark = "!" if glob.startswith("!") else ""
    plain = glob.removeprefix("!").removeprefix("./")
    if "/" not in plain.rstrip("/") or plain.startswith("**/"):
        return [mark + plain]
    given = "" if given == HERE else given
    globs = [f"{mark}{given}/{plain.lstrip('/')}"]
    inside = plain.lstrip("/").removeprefix(start.path + "/")
    return globs if inside == plain.lstrip("/") else [*globs, f"{mark}{given}/{inside}"]


async def _collect(searching: AsyncGenerator[FileMatches, None], limit: int, hits: _Hits) -> None:
    try:
        async with asyncio.timeout(DEADLINE), aclosing(searching) as found:
            async for file in found:
                if not hits.take(file, limit):
                    return
    except TimeoutError:
        hits.stopped = f"stopped after {DEADLINE:.0f} s"
    except OSError as error:
        raise EnvironmentFault(f"ripgrep could not be started: {error.strerror}.") from error


def _check(arguments: GrepArguments, outcome: Outcome, hits: _Hits) -> None:
    """Raise what ripgrep complains about where that is the arguments' fault or nothing was found."""
    if hits.stopped and not hits.files and not outcome.oversize:
        raise ToolTimeout(
            f"The search was {hits.stopped} without a match. Narrow it with path, glob or a simpler pattern."
        )
    if outcome.status != 2 or hits.files:
        return
    message = outcome.errors.strip()
    if "regex parse error" in message or "not allowed in a regex" in message or "regex" in message:
        literal = _SPECIAL.sub(r"\\\1", arguments.pattern)
        hint = f" To search for the text itself, use: {literal}" if literal != arguments.pattern else ""
        raise InvalidArguments(f"The pattern is not valid: {message[:1500]}.{hint}")
    if "error parsing glob" in message:
        raise InvalidArguments(f"The glob is not valid: {message[:500]}.")


def _named(path: str, given: str, start: Entry) -> str:
    """A path of the workspace from a path below the searched folder."""
    below = path.removeprefix(given).lstrip("/")
    return below if start.path == "." else f"{start.path}/{below}" if below else start.path


def _verified(root: Path, hits: _Hits) -> tuple[list[str], int]:
    """The lines to show, each read again through a confined descriptor; how many of them are clipped.

    A folder swapped for a link while ripgrep walks could lead it outside. Nothing that is not, right now,
    in the file of that name inside the workspace is shown.
    """
    body: list[str] = []
    clipped = 0
    for found in hits.files:
        try:
            lines = _shown(root, found)
        except ToolError:
            lines = None
        if lines is None:
            hits.changed += 1
            hits.matches -= found.matches
            continue
        body.append(visible(os.fsencode(found.path).decode("utf-8", "replace")))
        body += lines
        clipped += sum(bool(line.before or line.after) for line in found.lines)
    hits.files = [found for found in hits.files if found.lines]
    return body, clipped


def _shown(root: Path, found: FileMatches) -> list[str] | None:
    direct = found.content is not None
    if not direct:
        with open_file(root, found.path) as (descriptor, _):
            direct = all(
                os.pread(descriptor, len(line.data), line.offset) == line.data for line in found.lines
            )
    plain = direct and all(line.data.isascii() or _is_utf8(line) for line in found.lines)
    text = None
    if not plain:
        try:
            data = found.content if found.content is not None else read_bytes(root, found.path)[0]
            text = Text.decode(data).flat.split("\n")
        except Binary:
            return None
    lines: list[str] = []
    last = None
    for line in found.lines:
        if last is not None and line.number > last + 1:
            lines.append("--")
        last = line.number
        shown = line.data.decode("utf-8", "ignore") if text is None else _from(text, line)
        if shown is None:
            return None
        cut = f"…[{line.before} bytes clipped]" if line.before else ""
        end = f"…[{line.after} bytes clipped]" if line.after else ""
        lines.append(f"{line.number}{':' if line.is_match else '-'}{cut}{visible(shown)}{end}")
    return lines


def _is_utf8(line: Line) -> bool:
    """Whether a line is UTF-8, apart from a character cut at either end of what was kept."""
    data = line.data
    if line.before:
        data = data.lstrip(bytes(range(0x80, 0xC0)))
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return bool(line.after) and error.start >= len(data) - 3
    return True


def _from(text: list[str], line: Line) -> str | None:
    """The line of a decoded file that a match in another encoding (or after a mark) stands for."""
    if line.number > len(text):
        return None
    whole = text[line.number - 1]
    shown = line.data.decode("utf-8", "replace")
    if "\ufffd" not in shown and not line.before and not line.after and shown.lstrip("\ufeff") != whole:
        return None
    return whole if not line.before and not line.after else whole[: len(line.data)]


def _first(lines: list[Line], matches: int) -> list[Line]:
    """Lines up to and including the given number of matches."""
    kept: list[Line] = []
    for line in lines:
        if line.is_match:
            if not matches:
                break
            matches -= 1
        kept.append(line)
    return kept


def _fitting(lines: list[Line], room: int) -> list[Line]:
    """The lines that fit in so many bytes; at least one."""
    for count, line in enumerate(lines):
        room -= len(line.data) + 8
        if room < 0:
            return lines[: max(count, 1)]
    return lines


def _notes(
    arguments: GrepArguments, workspace: Workspace, hits: _Hits, outcome: Outcome, clipped: int
) -> list[str]:
    notes: list[str] = []
    if hits.stopped:
        notes.append(f"incomplete: {hits.stopped}; narrow with path, glob or a longer pattern")
    elif hits.matches:
        notes.append(f"{hits.matches} match{'es' * (hits.matches > 1)}")
    else:
        notes.append("no match")
    if clipped:
        notes.append(f"{clipped} long line{'s' * (clipped > 1)} clipped")
    for count, what in (
        (outcome.oversize, "matching line too long to show"),
        (hits.binary, "binary file left out"),
        (hits.changed, "file changed during the search, left out"),
    ):
        if count:
            notes.append(f"{count} {what}")
    if outcome.status == 2:
        notes.append(f"not all could be read: {visible(outcome.errors.strip().splitlines()[0], 200)}")
    scope = workspace_path(workspace.root, arguments.path or ".")
    unsaved = [path for path in workspace.buffers if scope in (".", path) or path.startswith(scope + "/")]
    if unsaved:
        notes.append(f"open in the editor, searched as saved on disk: {', '.join(sorted(unsaved)[:5])}")
    return notes
