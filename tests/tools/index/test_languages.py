"""Definitions in every language, counted again by another tool: ctags, Python's parser, TypeScript's."""

import ast
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from pygments.lexers import get_lexer_for_filename
from pygments.token import Name

from tests.support.published import published_source
from tools.index.languages import EXTENSIONS, language, language_of
from tools.index.parsing import Parsed, parse

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = Path(__file__).parent / "samples"

Places = set[tuple[int, str]]
"""(line, name) of definitions."""

COUNTS = {
    "queue.ts": {"enum": 1, "constant": 2, "interface": 1, "field": 3, "method": 8, "type": 1, "class": 3,
                 "function": 3, "module": 1},
    "store.js": {"variable": 1, "class": 1, "field": 1, "method": 5, "function": 3},
    "ring.go": {"constant": 3, "variable": 2, "struct": 2, "field": 5, "interface": 1, "method": 5, "type": 2,
                "function": 2},
    "lexer.rs": {"constant": 4, "variable": 1, "enum": 1, "field": 3, "struct": 1, "interface": 1, "type": 2,
                 "method": 5, "macro": 1, "module": 1, "function": 2},
    "Ledger.java": {"class": 2, "field": 4, "enum": 1, "constant": 2, "method": 8, "interface": 2},
    "table.c": {"macro": 2, "type": 3, "enum": 1, "constant": 2, "struct": 2, "field": 9, "union": 1,
                "variable": 2, "function": 4},
    "shapes.cpp": {"macro": 1, "module": 1, "enum": 1, "constant": 2, "struct": 1, "field": 5, "class": 2,
                   "method": 9, "type": 1, "function": 2, "variable": 1},
    "Scheduler.cs": {"module": 1, "type": 1, "enum": 1, "constant": 2, "interface": 1, "field": 7,
                     "method": 5, "struct": 1, "class": 1},
    "router.php": {"constant": 2, "interface": 1, "method": 7, "class": 3, "field": 4, "function": 1},
    "basket.rb": {"module": 1, "constant": 1, "class": 3, "field": 2, "method": 7, "function": 1},
    "Cache.kt": {"class": 4, "method": 4, "constant": 2, "field": 4, "variable": 1, "function": 1},
    "stack.lua": {"function": 3, "method": 2},
    "backup.sh": {"variable": 2, "function": 3},
    "Account.swift": {"interface": 1, "method": 5, "enum": 1, "constant": 2, "struct": 1, "field": 3,
                      "class": 1, "function": 1},
    "Graph.scala": {"interface": 1, "method": 4, "class": 3, "field": 1},
}  # fmt: skip

TYPESCRIPT = ("queue.ts", "store.js")
PYGMENTS = ("Account.swift", "Graph.scala")
"""Languages that ctags 5.9 does not know, or loses its way in."""

ONLY_OURS: dict[str, Places] = {
    "ring.go": {(23, "mu"), (24, "items"), (25, "head"), (26, "size")},  # fields of a generic struct
    "lexer.rs": {(5, "MAX_DEPTH"), (13, "text")},  # constants and fields of variants
    "shapes.cpp": {(24, "operator<"), (32, "Circle"), (33, "area")},  # declarations in the class
    "router.php": {(37, "prefix")},  # a promoted parameter
    "Cache.kt": {(8, "OLDEST"), (9, "NEWEST")},
    "backup.sh": {(4, "KEEP"), (5, "target")},
}
"""What ctags 5.9 does not look for."""
ONLY_THEIRS: dict[str, Places] = {
    "lexer.rs": {(38, "Token"), (49, "Token")},  # `impl` blocks
    "shapes.cpp": {(24, "operator <")},
    "basket.rb": {(11, "count=")},  # the writer of an accessor
    "Cache.kt": {(16, "<lambda>")},
}


def parsed(path: Path) -> Parsed:
    name = language_of(path.name)
    assert name is not None
    return parse(name, path.read_bytes(), flaws=True)[0]


def places(found: Parsed) -> Places:
    return {(one.line, one.name) for one in found.symbols}


def tags(path: Path) -> Places:
    """What ctags finds, packages aside, which the index does not hold."""
    assert shutil.which("ctags"), "universal-ctags is not installed"
    command = ["ctags", "--output-format=json", "--fields=+nK", "-f", "-", str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in printed.splitlines()]
    return {
        (row["line"], re.split(r"[.:]", row["name"])[-1] if path.suffix == ".lua" else row["name"])
        for row in rows
        if row["kind"] not in ("package", "heredoc")
        and not (row["kind"] == "namespace" and path.suffix == ".php")
    }


@pytest.mark.parametrize("name", COUNTS)
def test_each_kind_is_counted(name: str) -> None:
    found = parsed(SAMPLES / name)
    assert Counter(one.kind for one in found.symbols) == COUNTS[name]
    assert found.errors == 0


def test_every_language_has_a_sample() -> None:
    sampled = {language_of(name) for name in COUNTS}
    assert set(EXTENSIONS) - sampled == {
        "python",
        "tsx",
    }  # the one is compared below, the other is TypeScript


@pytest.mark.parametrize("name", [one for one in COUNTS if one not in TYPESCRIPT + PYGMENTS])
def test_ctags_finds_the_same(name: str) -> None:
    ours, theirs = places(parsed(SAMPLES / name)), tags(SAMPLES / name)
    assert len(theirs) >= 3
    assert theirs - ours <= ONLY_THEIRS.get(name, set())
    assert ours - theirs <= ONLY_OURS.get(name, set())


@pytest.mark.parametrize("name", TYPESCRIPT)
def test_the_compiler_of_typescript_finds_the_same(name: str) -> None:
    compiler = ROOT / "extension" / "node_modules" / "typescript"
    command = ["node", str(Path(__file__).parent / "definitions.cjs"), str(compiler), str(SAMPLES / name)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert places(parsed(SAMPLES / name)) == {(line, title) for line, title in json.loads(printed)}


@pytest.mark.parametrize("name", PYGMENTS)
def test_pygments_finds_the_same_classes_and_functions(name: str) -> None:
    line, theirs = 1, Counter[str]()
    for token, text in get_lexer_for_filename(name).get_tokens((SAMPLES / name).read_text()):
        if token in (Name.Class, Name.Function) and text.strip():
            theirs[text] += 1
        line += text.count("\n")
    kinds = {"class", "interface", "struct", "enum", "function", "method"}
    ours = Counter(one.name for one in parsed(SAMPLES / name).symbols if one.kind in kinds)
    assert len(ours) >= 5
    assert ours <= theirs


@pytest.fixture(scope="module")
def pygments_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_source("pygments", "2.19.2", tmp_path_factory.mktemp("sdist")) / "tests" / "examplefiles"


@pytest.mark.parametrize(
    ("name", "missed", "most"),
    [
        ("rust/eval.rs", 2, 0),  # two `impl` blocks; the file is in a dialect of old
        ("java/test.java", 0, 0),
        ("c/ceval.c", 2, 9),  # one function of 1,300 lines whose braces the preprocessor chooses
        ("cpp/example.cpp", 7, 90),  # `astyle::name` of variables; methods declared in a class
        ("csharp/test.cs", 1, 12),  # ctags misses most methods of this one
        ("rb/example.rb", 13, 5),  # methods within a string
        ("lua/example.lua", 0, 1),
        ("bash/ltmain.sh", 0, 0),
        ("go/generics.go", 0, 0),
        ("php/test.php", 4, 1),
    ],
)
def test_real_files_agree_with_ctags(pygments_examples: Path, name: str, missed: int, most: int) -> None:
    """Files that real projects published, some in old dialects: nearly every tag is found, few are added."""
    file = pygments_examples / name
    ours, theirs = places(parsed(file)), tags(file)
    assert len(theirs - ours) <= missed
    assert len(ours - theirs) <= most


@pytest.fixture(scope="module")
def django(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_source("django", "5.2.8", tmp_path_factory.mktemp("sdist"))


def test_pythons_own_parser_finds_the_same_in_a_whole_framework(django: Path) -> None:
    compared = definitions = 0
    for file in sorted((django / "django").rglob("*.py")):
        data = file.read_bytes()
        theirs: Places = set()
        for node in ast.walk(ast.parse(data)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                theirs.add((node.lineno, node.name))
        found, _ = parse("python", data)
        ours = {(one.line, one.name) for one in found.symbols if one.kind in ("class", "function", "method")}
        assert ours == theirs, file
        last = {one.line: one.last_line for one in found.symbols if one.kind == "class"}
        for node in ast.walk(ast.parse(data)):
            if isinstance(node, ast.ClassDef):  # comments at its end belong to a block here
                assert last[node.lineno] >= (node.end_lineno or 0)
        compared, definitions = compared + 1, definitions + len(ours)
    assert compared > 800 and definitions > 9000


def test_the_words_of_python_are_those_of_its_tokens(django: Path) -> None:
    """Identifiers outside comments and strings, with their lines, as the syntax tree has them."""
    for file in sorted((django / "django" / "db" / "models").rglob("*.py")):
        data = file.read_bytes()
        _, words = parse("python", data)
        wanted: set[tuple[str, int]] = set()
        for node in ast.walk(ast.parse(data)):
            if isinstance(node, ast.Name):
                wanted.add((node.id, node.lineno))
            elif isinstance(node, ast.keyword) and node.arg:
                wanted.add((node.arg, node.lineno))
        wanted = {(name, line) for name, line in wanted if name.encode() not in language("python").keywords}
        missing = {(name, line) for name, line in wanted if line not in words.get(name.encode(), ())}
        assert missing == set(), file


def test_containers_signatures_and_docs() -> None:
    by_name = {f"{one.container}.{one.name}".lstrip("."): one for one in parsed(SAMPLES / "lexer.rs").symbols}
    assert by_name["Token.new"].signature == "pub fn new(kind: Kind, line: usize) -> Self"
    assert by_name["Token.new"].doc == "A token of a line."
    assert by_name["Kind"].doc == "What a token is."
    java = {f"{one.container}.{one.name}".lstrip("."): one for one in parsed(SAMPLES / "Ledger.java").symbols}
    assert java["Ledger"].doc == "Adds up entries."
    assert java["Ledger.Side.other"].container == "Ledger.Side"
    go = {f"{one.container}.{one.name}".lstrip("."): one for one in parsed(SAMPLES / "ring.go").symbols}
    assert (
        go["Ring.Put"].kind == "method" and go["Ring.Put"].signature == "func (r *Ring[T]) Put(item T) error"
    )
    assert go["New"].doc == "New makes a ring of the given size."
    cpp = [one for one in parsed(SAMPLES / "shapes.cpp").symbols if one.name == "area"]
    assert {one.container for one in cpp} == {"shapes::Shape", "shapes::Circle"}
    ruby = {f"{one.container}.{one.name}".lstrip("."): one for one in parsed(SAMPLES / "basket.rb").symbols}
    assert ruby["Shop::Item.empty?"].kind == "method"
    typescript = {
        f"{one.container}.{one.name}".lstrip("."): one for one in parsed(SAMPLES / "queue.ts").symbols
    }
    assert typescript["JobQueue"].doc == 'Runs jobs one after the other, "run" again when they fail.'
    assert typescript["JobQueue"].signature == "class JobQueue<T> extends EventEmitter"
    swift = {
        f"{one.container}.{one.name}".lstrip("."): one for one in parsed(SAMPLES / "Account.swift").symbols
    }
    assert swift["Account.isEmpty"].kind == "method"


@pytest.mark.parametrize(
    ("name", "word", "not_code"),
    [
        ("queue.ts", "run", ['// Runs jobs one after the other, "run" again']),
        ("store.js", "size", ["return `size: ${"]),
        ("table.c", "key", ["/* The value of a key"]),
        ("lexer.rs", "line", ["/// A token of a line"]),
        ("basket.rb", "item", []),
        ("Ledger.java", "Ledger", ['An empty "Ledger" has']),
        ("Scheduler.cs", "Scheduler", []),
        ("router.php", "path", []),
        ("ring.go", "ring", ["// Package ring", 'errors.New("ring: full")', "// New makes a ring"]),
        ("Cache.kt", "cache", ['println("cache")']),
        ("backup.sh", "target", []),
    ],
)
def test_words_leave_comments_and_strings_out(name: str, word: str, not_code: list[str]) -> None:
    data = (SAMPLES / name).read_bytes()
    _, words = parse(language_of(name) or "", data)
    lines = [
        number
        for number, line in enumerate(data.decode().split("\n"), 1)
        if re.search(rf"\b{word}\b", line) and not any(one in line for one in not_code)
    ]
    assert words[word.encode()] == lines


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("a.py", b"", "python"),
        ("a/b/Rakefile", b"", "ruby"),
        ("tool", b"#!/usr/bin/env python3\n", "python"),
        ("tool", b"#!/bin/sh -e\n", "bash"),
        ("tool", b"#!/usr/bin/env -S node --no-warnings\n", "javascript"),
        ("a.h", b"", "cpp"),
        ("README.md", b"", None),
        (".py", b"", None),
        ("Makefile", b"all:\n", None),
    ],
)
def test_the_language_of_a_file(path: str, data: bytes, expected: str | None) -> None:
    assert language_of(path, data) == expected
