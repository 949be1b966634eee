"""Questions with known answers, from published sources: a docstring's first sentence → the file it is in.

For each pair the docstring is taken out of its file, so that the answer is not there word for word, and
pairs whose sentence stands anywhere else are left out. Tests ask no questions but are among the files.
"""

import ast
import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1_000_000
FEWEST_WORDS, MOST_WORDS = 6, 40

_WORD = re.compile(r"[A-Za-z]{3,}")


@dataclass(frozen=True)
class Mined:
    """`pairs` of question and path; `root` holds the files, their docstrings already taken out."""

    root: Path
    pairs: list[tuple[str, str]]
    texts: dict[str, str]

    @property
    def digest(self) -> str:
        """What shows that the pairs are the same as ever."""
        text = "\n".join(f"{path}\t{question}" for question, path in self.pairs)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def mine(root: Path, seed: int, count: int) -> Mined:
    """Up to `count` pairs, one for a file, and the changed tree. The same seed gives the same pairs."""
    texts = _texts(root)
    plain = {path: " ".join(text.split()) for path, text in texts.items()}
    asked: dict[str, list[tuple[str, ast.Constant]]] = {}
    for path, text in texts.items():
        if path.endswith(".py") and not _is_test(path) and (found := list(_questions(text))):
            asked[path] = found
    chance = random.Random(seed)
    order = sorted(asked)
    chance.shuffle(order)
    pairs: list[tuple[str, str]] = []
    for path in order:
        chance.shuffle(asked[path])
        for question, node in asked[path]:
            if sum(question in text for text in plain.values()) != 1:
                continue
            without = _without(texts[path], node)
            if question in " ".join(without.split()):
                continue
            texts[path] = without
            (root / path).write_text(without, encoding="utf-8", newline="")
            pairs.append((question, path))
            break
        if len(pairs) == count:
            break
    return Mined(root, pairs, texts)


def _texts(root: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_BYTES:
            continue
        data = path.read_bytes()
        if b"\0" in data:
            continue
        try:
            texts[path.relative_to(root).as_posix()] = data.decode()
        except UnicodeDecodeError:
            continue
    return texts


def _is_test(path: str) -> bool:
    *folders, name = path.split("/")
    return (
        bool({"tests", "test", "testing"} & set(folders))
        or name.startswith("test_")
        or name in ("tests.py", "conftest.py")
    )


def _questions(text: str) -> Iterator[tuple[str, ast.Constant]]:
    """First sentences of docstrings that say something, with where they stand."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
            continue
        if not isinstance(first.value.value, str):
            continue
        paragraph = " ".join(re.split(r"\n\s*\n", first.value.value.strip())[0].split())
        sentence = re.split(r"(?<=[.!?])\s", paragraph)[0]
        words = _WORD.findall(sentence)
        if ">>>" in paragraph or len({word.lower() for word in words}) < FEWEST_WORDS:
            continue
        if len(words) <= MOST_WORDS:
            yield sentence, first.value


def _without(text: str, node: ast.Constant) -> str:
    """The text with an empty string in the place of a docstring, and as many lines."""
    lines = text.splitlines(keepends=True)

    def at(line: int, column: int) -> int:
        before = lines[line - 1].encode()[:column].decode()
        return sum(len(one) for one in lines[: line - 1]) + len(before)

    assert node.end_lineno is not None and node.end_col_offset is not None
    start, end = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
    return text[:start] + '""' + "\n" * text[start:end].count("\n") + text[end:]
