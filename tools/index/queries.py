"""Questions to the tables of an index: definitions by name, outlines of folders, uses of an identifier."""

import re
import sqlite3
from dataclasses import dataclass
from typing import Final, Literal

from tools.index.schema import named_path
from tools.index.symbol import Kind
from tools.index.uses import files_using

CANDIDATES: Final = 4_000
"""Rows looked at to rank them; a query with more is too vague to be ranked."""
ABBREVIATION: Final = 2
"""Characters a query has at least to be tried as an abbreviation."""

Match = Literal["exact", "prefix", "abbreviation"]

_SEPARATOR: Final = re.compile(r"::|[.#:/\\]|->")
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_COLUMNS: Final = "f.path, s.kind, s.name, s.container, s.line, s.last_line, s.signature, s.doc"


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition and the file it is in."""

    path: str
    kind: Kind
    name: str
    container: str
    line: int
    last_line: int
    signature: str
    doc: str


@dataclass(frozen=True, slots=True)
class Found:
    """Definitions, best first, all by the same kind of match; `more` begin or are written like the query."""

    definitions: list[Definition]
    match: Match
    total: int
    more: list[str]


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of a workspace: a file or folder ("." being all of it), and a kind."""

    path: str = "."
    kind: str | None = None

    def condition(self) -> tuple[str, list[str]]:
        """SQL for `f` and `s`, and its parameters."""
        parts: list[str] = []
        values: list[str] = []
        if self.path != ".":
            # The paths in a folder lie between "folder/" and "folder0": "0" follows "/".
            parts.append("(f.path = ? OR (f.path > ? AND f.path < ?))")
            values += [self.path, self.path + "/", self.path + "0"]
        if self.kind is not None:
            parts.append("s.kind = ?")
            values.append(self.kind)
        return "".join(f" AND {part}" for part in parts), values


def definitions(db: sqlite3.Connection, query: str, scope: Scope, limit: int) -> Found:
    """Where a name is defined: exactly so, else names beginning so, else names it abbreviates."""
    *containers, name = [part for part in _SEPARATOR.split(query.strip()) if part] or [""]
    exact = [
        one
        for one in _rows(db, "s.name = ? COLLATE NOCASE", [name], scope)
        if _is_in(one.container, containers)
    ]
    same_case = [one for one in exact if one.name == name]
    longer = [
        one
        for one in _rows(
            db, "s.name > ? COLLATE NOCASE AND s.name < ? COLLATE NOCASE", [name, name + "\uffff"], scope
        )
        if one.name.lower().startswith(name.lower()) and _is_in(one.container, containers)
    ]
    if exact:
        others = [one.name for one in [*exact, *longer] if one.name != name]
        chosen = same_case or exact
        return Found(sorted(chosen, key=_rank)[:limit], "exact", len(chosen), _names(others, name))
    if longer:
        longer.sort(key=lambda one: (len(one.name), *_rank(one)))
        return Found(longer[:limit], "prefix", len(longer), [])
    if len(name) < ABBREVIATION:
        return Found([], "abbreviation", 0, [])
    pattern = "%".join(["", *(_escaped(character) for character in name if character != "_"), ""])
    like = [
        (score, one)
        for one in _rows(db, "s.name LIKE ? ESCAPE '\\'", [pattern], scope)
        if (score := abbreviates(name, one.name)) is not None and _is_in(one.container, containers)
    ]
    like.sort(key=lambda pair: (pair[0], len(pair[1].name), *_rank(pair[1])))
    return Found([one for _, one in like[:limit]], "abbreviation", len(like), [])


def abbreviates(short: str, name: str) -> int | None:
    """How well `short` abbreviates a name, 0 being best; None where its letters are not in it in order.

    0: the beginnings of all its parts (`gUN` for `getUserName`, `gun` for `get_user_name`); 1: beginnings of
    some parts in order; 2: it is a part of the name; beyond, the gaps between its letters.
    """
    plain, whole = short.replace("_", "").lower(), name.replace("_", "").lower()
    parts = [part.lower() for part in _PARTS.findall(name)]
    if plain == "".join(part[0] for part in parts):
        return 0
    if _of_beginnings(plain, parts):
        return 1
    if plain in whole:
        return 2
    at, gaps = -1, 0
    for character in plain:
        next_at = whole.find(character, at + 1)
        if next_at < 0:
            return None
        gaps += next_at - at - 1 if at >= 0 else next_at
        at = next_at
    return 3 + gaps


def _of_beginnings(short: str, parts: list[str]) -> bool:
    """Whether a text is made of beginnings of parts, in their order."""
    rests = {short}
    for part in parts:
        grown: set[str] = set()
        for rest in rests:
            length = 0
            while length < min(len(part), len(rest)) and part[length] == rest[length]:
                length += 1
                grown.add(rest[length:])
        rests |= grown
        if "" in rests:
            return True
    return False


def outline(db: sqlite3.Connection, scope: Scope, limit: int) -> tuple[list[Definition], int]:
    """What the files of a folder define at top level (any level where a kind is asked for), and how many."""
    condition, values = scope.condition()
    level = "" if scope.kind else " AND s.container = ''"
    where = f"FROM symbols s JOIN files f ON f.id = s.file WHERE 1{condition}{level}"
    total = db.execute(f"SELECT count(*) {where}", values).fetchone()[0]
    rows = db.execute(f"SELECT {_COLUMNS} {where} ORDER BY f.path, s.line LIMIT ?", [*values, limit])
    return [Definition(named_path(row[0]), *row[1:]) for row in rows], total


@dataclass(frozen=True, slots=True)
class UsesInFile:
    """The lines of a file on which an identifier is used, and those on which it is defined."""

    path: str
    lines: list[int]
    defined: frozenset[int]


def uses(db: sqlite3.Connection, word: str, scope: Scope) -> list[UsesInFile]:
    """Files that use an identifier, by path."""
    condition, values = Scope(scope.path).condition()
    found: list[UsesInFile] = []
    for file, lines in files_using(db, word):
        row = db.execute(f"SELECT f.path FROM files f WHERE f.id = ?{condition}", [file, *values]).fetchone()
        if row is None:
            continue
        defined = db.execute("SELECT line FROM symbols WHERE file = ? AND name = ?", (file, word))
        found.append(UsesInFile(named_path(row[0]), lines, frozenset(line for (line,) in defined)))
    return sorted(found, key=lambda one: one.path)


def coverage(db: sqlite3.Connection, scope: Scope) -> tuple[int, dict[str, int]]:
    """Files with definitions looked for in a part of the workspace; other text files by ending."""
    condition, values = Scope(scope.path).condition()
    known = db.execute(
        f"SELECT count(*) FROM files f WHERE state = 'indexed' AND language IS NOT NULL{condition}", values
    ).fetchone()[0]
    others: dict[str, int] = {}
    for (path,) in db.execute(
        f"SELECT f.path FROM files f WHERE state = 'indexed' AND language IS NULL{condition} LIMIT ?",
        [*values, CANDIDATES],
    ):
        name = named_path(path).rpartition("/")[2]
        stem, dot, extension = name.rpartition(".")
        ending = dot + extension if stem and dot else name
        others[ending] = others.get(ending, 0) + 1
    return known, dict(sorted(others.items(), key=lambda item: -item[1]))


def _rows(db: sqlite3.Connection, where: str, values: list[str], scope: Scope) -> list[Definition]:
    condition, more = scope.condition()
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM symbols s JOIN files f ON f.id = s.file WHERE {where}{condition} LIMIT ?",
        [*values, *more, CANDIDATES],
    )
    return [Definition(named_path(row[0]), *row[1:]) for row in rows]


def _is_in(container: str, wanted: list[str]) -> bool:
    """Whether a container ends with the names wanted, as `Outer.Inner` does with `inner`."""
    if not wanted:
        return True
    parts = [part.lower() for part in _SEPARATOR.split(container) if part]
    return parts[-len(wanted) :] == [part.lower() for part in wanted]


_WEIGHTS: Final = {"field": 2, "variable": 2, "constant": 2}


def _rank(one: Definition) -> tuple[int, int, str, int]:
    """What a reader looks for first: code before data, near the top of the tree before deep in it."""
    return _WEIGHTS.get(one.kind, 1), one.path.count("/"), one.path, one.line


def _names(names: list[str], without: str) -> list[str]:
    return list(dict.fromkeys(name for name in names if name != without))


def _escaped(character: str) -> str:
    return "\\" + character if character in "%_\\" else character
