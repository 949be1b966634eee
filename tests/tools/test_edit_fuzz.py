"""apply_edits against a plain reference, on random files of mixed line ends, encodings and marks.

The reference never decodes: it builds each file as a list of cells, a character beside its own bytes, finds
`old` by comparing characters one by one, and knows that every byte outside must come out as it went in.
"""

import random
import time
from dataclasses import dataclass

import pytest

from tools.edit import apply_edits

FILES = 10_000
SEED = 20_240_607

ASCII = ["x", "if", "return", "w", "(a)", "=", "{", "}", "'s'", "a.b", "$&", "\\n", "\\", "0", "-", "#"]
WORDS = {
    "utf-8": ["é", "naïve", "日本", "“q”", "a\u00a0b", "\U0001f600", "\u2028", "–"],
    "utf-16-le": ["é", "日本", "\U0001f600", "\u0a0d", "\u0d0a", "\u2028"],
    "utf-16-be": ["é", "日本", "\U0001f600", "\u0a0d", "\u0d0a"],
    "latin-1": ["é", "naïve", "ÀÉ", "ß"],
    "cp1252": ["“q”", "–", "é", "€"],
    "gbk": ["配置", "文件", "中文", "一"],
    "cp932": ["これは", "表示", "能", "テスト", "ソ"],
    "euc_jp": ["これは", "表示", "能"],
    "big5": ["許功蓋", "檔案", "請"],
    "cp949": ["한국어", "설정", "파일"],
    "koi8_r": ["Привет", "мир", "и"],
    "bytes": [],
}
MARKS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
ENDINGS = [["\n"], ["\r\n"], ["\n", "\r\n"], ["\r\n", "\n", "\n"], ["\n", "\n", "\r\n"], ["\r"]]


@dataclass
class Cell:
    character: str
    data: bytes


@dataclass
class File:
    codec: str
    mark: bytes
    cells: list[Cell]
    starts: list[int]
    """Where each word begins, in cells."""
    ends: list[int]

    @property
    def data(self) -> bytes:
        return self.mark + b"".join(cell.data for cell in self.cells)


def make(chance: random.Random) -> File:
    codec = chance.choice([*WORDS, "utf-8", "utf-8"])
    mark = MARKS.get(codec, b"\xef\xbb\xbf" if codec == "utf-8" and chance.random() < 0.3 else b"")
    endings = chance.choice(ENDINGS)
    file = File(codec, mark, [], [], [])

    def add(text: str) -> None:
        for character in text:
            data = character.encode("latin-1" if codec == "bytes" else codec)
            file.cells.append(Cell(character, data))

    for number in range(chance.randrange(2, 30)):
        if chance.random() < 0.15:
            add(chance.choice(["", "   ", "\t", "\t\t", "        "]))
        for _ in range(chance.randrange(1, 6)):
            kind = chance.random()
            if kind < 0.4:
                word = f"w{number}x{len(file.cells)}"
            elif kind < 0.75 or (codec not in WORDS and codec != "bytes"):
                word = chance.choice(ASCII)
            elif codec == "bytes":
                word = "".join(chr(chance.randrange(0x80, 0x100)) for _ in range(chance.randrange(1, 5)))
            else:
                word = chance.choice(WORDS[codec])
            file.starts.append(len(file.cells))
            add(word)
            file.ends.append(len(file.cells))
            add(chance.choice([" ", " ", " ", "  ", "\t"]))
        if chance.random() < 0.9:
            ending = chance.choice(endings)
            file.cells.append(Cell("\n", b"".join(part.encode(as_codec(codec)) for part in ending)))
    add("end" if chance.random() < 0.5 else "")
    return file


def as_codec(codec: str) -> str:
    return "latin-1" if codec == "bytes" else codec


def occurrences(cells: list[Cell], old: str) -> int:
    count = 0
    for start in range(len(cells) - len(old) + 1):
        if all(cells[start + offset].character == character for offset, character in enumerate(old)):
            count += 1
    return count


def plain(file: File, start: int, end: int) -> bool:
    """Whether a range can be named by a model: ASCII, unless the encoding is certain."""
    certain = file.codec.startswith("utf")
    return certain or all(cell.character.isascii() for cell in file.cells[start:end])


def choose(chance: random.Random, file: File) -> list[tuple[int, int, str]]:
    """Ranges of whole words apart from each other, each unique in the file, with a replacement."""
    chosen: list[tuple[int, int, str]] = []
    for _ in range(chance.randrange(1, 4)):
        first = chance.randrange(len(file.starts))
        last = min(first + chance.choice([0, 0, 1, 2, 5, 12]), len(file.starts) - 1)
        start, end = file.starts[first], file.ends[last]
        old = "".join(cell.character for cell in file.cells[start:end])
        if end == len(file.cells) or not plain(file, start, end):
            continue
        if any(start < other_end and other_start < end for other_start, other_end, _ in chosen):
            continue
        if occurrences(file.cells, old) != 1:
            continue
        words = ASCII + (WORDS[file.codec] if file.codec.startswith("utf") else [])
        new = "new"
        for _ in range(chance.randrange(0, 6)):
            new += chance.choice([" ", "\n", "\n\n", "\n    "]) + chance.choice(words)
        chosen.append((start, end, new))
    return chosen


def check(file: File, chosen: list[tuple[int, int, str]], result: bytes) -> None:
    """Walk over the result: every cell outside as it was, every replacement as asked for."""
    endings = {cell.data for cell in file.cells if cell.character == "\n"}
    codec = as_codec(file.codec)
    assert result.startswith(file.mark)
    at, cell = len(file.mark), 0
    for start, end, new in sorted(chosen):
        outside = b"".join(part.data for part in file.cells[cell:start])
        assert result[at : at + len(outside)] == outside
        at += len(outside)
        for character in new:
            if character != "\n":
                data = character.encode(codec)
            else:
                fitting = [ending for ending in endings if result.startswith(ending, at)]
                data = max(fitting, key=len) if endings else "\n".encode(codec)
            assert result[at : at + len(data)] == data
            at += len(data)
        cell = end
    assert result[at:] == b"".join(part.data for part in file.cells[cell:])


@pytest.mark.case("edit-1")
@pytest.mark.case("edit-2")
@pytest.mark.case("edit-5")
@pytest.mark.case("edit-table-latin1")
@pytest.mark.case("edit-table-encodings")
def test_bytes_outside_the_edits_are_identical() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    started = time.process_time()
    edited = 0
    codecs: dict[str, int] = {}
    while edited < FILES:
        file = make(chance)
        chosen = choose(chance, file)
        if not chosen:
            continue
        edits = []
        for start, end, new in chosen:
            old = "".join(cell.character for cell in file.cells[start:end])
            if chance.random() < 0.3:
                old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
            edits.append({"old": old, "new": new})
        chance.shuffle(edits)
        applied = apply_edits(file.data, edits)
        assert {hunk.tier for hunk in applied.hunks} == {"exact"}
        check(file, chosen, applied.data)
        edited += 1
        codecs[file.codec] = codecs.get(file.codec, 0) + 1
    print(f"{edited} files edited in {time.process_time() - started:.1f} s of CPU: {codecs}")
    assert min(codecs.values()) > 100 and set(codecs) == set(WORDS)
