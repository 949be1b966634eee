"""The `search` tool: the places of a workspace that answer a question in words."""

import asyncio
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from tools.contents import content, missing
from tools.encodings import Binary
from tools.errors import EnvironmentFault, InvalidArguments, ToolError
from tools.files import stat
from tools.index import Index, State
from tools.index.parsing import MAX_BYTES
from tools.result import Proposal, ToolResult
from tools.text import Text, visible
from tools.tool import Arguments, Progress, Tool
from tools.workspace import Workspace

if TYPE_CHECKING:
    from tools.ranking.passages import Passage
    from tools.ranking.places import Ranked

PLACES: Final = 10
"""Places shown."""
SPARE: Final = 5
"""Files looked at beyond that, for those that are gone or hold nothing any more."""
EXCERPT: Final = 4
LINE: Final = 160
"""Lines of an excerpt, and characters of a line."""
WAIT_S: Final = 8.0
"""Seconds to wait for a cold index before an incomplete answer is given."""

_SCOPES: Final = ("class", "interface", "struct", "enum", "union", "function", "method", "module", "macro")


class SearchArguments(Arguments):
    query: str = Field(
        min_length=1, max_length=20_000, description="What to find, in words: a question, a task, an error."
    )
    path: str | None = Field(None, description="Folder or file to look in, relative to the workspace.")


class Search(Tool):
    """Find the code and text that is about something, when its exact words are not known.

    Ranks files by the words of the query, taken apart and reduced to their stems (`parsing headers` finds
    `HeaderParser`): names and paths count more than text, code more than its tests. Answers the best places
    with their lines, definition and an excerpt. For exact text use grep, for a known name use symbols.
    """

    name = "search"
    kind = "search"
    read_only = True
    Arguments = SearchArguments

    async def propose(self, arguments: SearchArguments, workspace: Workspace) -> Proposal:
        await asyncio.to_thread(_scope, arguments, workspace)
        return Proposal(f"Search for {visible(arguments.query, 60)}", (arguments.path or ".",))

    async def run(self, arguments: SearchArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        folder = await asyncio.to_thread(_scope, arguments, workspace)
        index = Index.of(workspace)
        state = await index.refresh(timeout_s=WAIT_S)
        if state.phase == "unavailable":
            raise EnvironmentFault(f"There is no index of this workspace: {state.message}. Use grep instead.")
        if state.phase == "cold":
            return _answer(workspace, [], None, state)
        answer, places = await asyncio.to_thread(_places, arguments.query, workspace, index, folder)
        for place in places:
            if place.unsaved:
                await _name_again(index, place)
        return _answer(workspace, places, answer, state)


@dataclass(slots=True)
class _Place:
    """Where an answer is. `lines` are numbers and texts; `unsaved` is the text that only an editor has."""

    path: str
    first: int
    last: int
    line: int
    score: float
    lines: list[tuple[int, str]]
    definition: str = ""
    unsaved: str = ""


def _scope(arguments: SearchArguments, workspace: Workspace) -> str:
    """The canonical path to look in.

    Raises:
        InvalidArguments: the query has no words, or the path is nothing that can be looked into.
    """
    from tools.ranking.places import question_of

    if not question_of(arguments.query):
        raise InvalidArguments(
            "The query has no words to search by (marks and words such as 'the' do not count). Describe what "
            "to find, or use grep for exact text."
        )
    path = arguments.path or "."
    entry = stat(workspace.root, path)
    if entry is None:
        if path in workspace.buffers:
            return path
        raise missing(workspace, path)
    if entry.kind not in ("file", "directory"):
        raise InvalidArguments(f"{entry.path} is a {entry.kind}; give a folder or a regular file.")
    return entry.path


def _places(query: str, workspace: Workspace, index: Index, folder: str) -> tuple["Ranked", list[_Place]]:
    from tools.ranking.places import question_of, ranked

    newer = {path: buffer.text for path, buffer in workspace.buffers.items() if len(buffer.text) <= MAX_BYTES}
    found = ranked(index, question_of(query), folder, newer, PLACES + SPARE)
    places: list[_Place] = []
    for path, score in found.files:
        place = _place(workspace, path, score, found.rarity)
        if place is not None:
            places.append(place)
        if len(places) == PLACES:
            break
    _name(index, [place for place in places if not place.unsaved])
    return found, places


def _place(workspace: Workspace, path: str, score: float, rarity: dict[str, float]) -> _Place | None:
    """The part of a file that answers best, as the file is now; None where it is gone."""
    from tools.ranking.passages import best_passage

    try:
        now = content(workspace, path, 2 * MAX_BYTES)
        text = Text.decode(now.data).flat
    except (ToolError, Binary):
        return None
    passage = best_passage(text, rarity)
    lines = text.split("\n")
    if passage is None:  # only its path says it
        return _Place(path, 1, min(len(lines), EXCERPT), 1, score, [], unsaved=text if now.unsaved else "")
    shown = _excerpt(lines, passage)
    unsaved = text if now.unsaved else ""
    return _Place(path, passage.first, passage.last, passage.line, score, shown, unsaved=unsaved)


def _excerpt(lines: list[str], passage: "Passage") -> list[tuple[int, str]]:
    """The lines that say most, in their order."""
    return [(number, lines[number - 1].strip()) for number in sorted(passage.best[:EXCERPT])]


def _name(index: Index, places: list[_Place]) -> None:
    """Say in which definition each place is."""
    from tools.index import views
    from tools.index.schema import stored_path

    marks = ",".join(f"'{kind}'" for kind in _SCOPES)
    query = (
        "SELECT s.container, s.signature FROM symbols s JOIN files f ON f.id = s.file WHERE f.path = ? "
        f"AND s.line <= ? AND s.last_line >= ? AND s.kind IN ({marks}) ORDER BY s.line DESC LIMIT 1"
    )
    try:
        with views.reading(index) as db:
            for place in places:
                row = db.execute(query, (stored_path(place.path), place.line, place.line)).fetchone()
                if row is not None:
                    place.definition = _definition(*row)
    except (EnvironmentFault, sqlite3.Error):
        return  # the places are right without it


async def _name_again(index: Index, place: _Place) -> None:
    """The same for a text that the index has not seen."""
    parsed = await index.parse(place.path, place.unsaved.encode("utf-8", "replace"))
    inside = [
        one
        for one in (parsed.symbols if parsed is not None else ())
        if one.kind in _SCOPES and one.line <= place.line <= one.last_line
    ]
    if inside:
        place.definition = _definition(inside[-1].container, inside[-1].signature)


def _definition(container: str, signature: str) -> str:
    within = f"[{visible(container, 80)}] " if container else ""
    return within + visible(signature, LINE)


def _answer(workspace: Workspace, places: list[_Place], found: "Ranked | None", state: State) -> ToolResult:
    lines: list[str] = []
    shown: list[_Place] = []
    size = 0
    for place in places:
        told = _told(place)
        size += sum(len(line.encode("utf-8", "replace")) + 1 for line in told)
        if size > workspace.output_limit and shown:
            break
        lines += told
        shown.append(place)
    notes: list[str] = []
    if found is not None and not shown:
        notes.append("nothing found; try other words, or grep")
    elif len(shown) < len(places):
        notes.append(f"the best {len(shown)} of {len(places)}")
    if found is not None and found.absent:
        notes.append(f"in no file: {visible(', '.join(found.absent[:10]), 200)}")
    if unsaved := [place.path for place in shown if place.unsaved]:
        notes.append(f"as in the editor, not saved: {', '.join(unsaved[:5])}")
    notes += state.notes()
    if notes:
        lines.append(f"({'; '.join(notes)})")
    data: dict[str, Any] = {
        "places": [{"path": one.path, "first": one.first, "last": one.last} for one in shown],
        "absent": found.absent if found is not None else [],
        "complete": state.complete,
        "files": state.done,
    }
    return ToolResult("\n".join(lines), data=data)


def _told(place: _Place) -> list[str]:
    span = str(place.first) if place.first == place.last else f"{place.first}-{place.last}"
    head = f"{visible(place.path)}:{span}"
    return [
        f"{head} {place.definition}".rstrip(),
        *(f"  {number}: {visible(text, LINE)}" for number, text in place.lines),
    ]
