"""The read tool: ranges, limits, what is no text, what is not there."""

import os
from pathlib import Path

import pytest

from tests.support.calling import call, workspace
from tools.errors import InvalidArguments, OutsideWorkspace
from tools.files import MAX_FILE_BYTES, NotFound
from tools.read import Read
from tools.workspace import Buffer, Workspace, content_hash


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    return workspace(tmp_path / "work")


async def read(place: Workspace, path: str, **range_: int):
    return await call(Read(), place, path=path, **range_)


async def test_lines_are_numbered_and_the_file_counts_as_seen(place: Workspace) -> None:
    data = b"one\n\n    three\n"
    (place.root / "a.py").write_bytes(data)
    result = await read(place, "a.py")
    assert result.text == "1\tone\n2\t\n3\t    three"
    assert result.seen == place.seen == {"a.py": content_hash(data)}


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (2, 3, "2\tl2\n3\tl3\n(lines 2-3 of 5)"),
        (4, None, "4\tl4\n5\tl5\n(lines 4-5 of 5)"),
        (None, 1, "1\tl1\n(lines 1-1 of 5)"),
        (5, 99, "5\tl5\n(lines 5-5 of 5)"),
        (1, 5, "1\tl1\n2\tl2\n3\tl3\n4\tl4\n5\tl5"),
    ],
)
async def test_a_range_is_inclusive(place: Workspace, start: int | None, end: int | None, text: str) -> None:
    (place.root / "a.py").write_text("l1\nl2\nl3\nl4\nl5")
    range_ = {name: value for name, value in (("start", start), ("end", end)) if value is not None}
    assert (await read(place, "a.py", **range_)).text == text


@pytest.mark.parametrize(
    "range_", [{"start": 0}, {"end": 0}, {"start": 3, "end": 2}, {"start": 6}, {"start": -1}]
)
async def test_a_range_that_cannot_be_is_refused(place: Workspace, range_: dict[str, int]) -> None:
    (place.root / "a.py").write_text("l1\nl2\nl3\nl4\nl5")
    with pytest.raises(InvalidArguments):
        await read(place, "a.py", **range_)


async def test_a_long_file_is_shown_in_part_and_says_how_to_go_on(place: Workspace) -> None:
    (place.root / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 6001)))
    result = await read(place, "a.txt")
    assert result.text.endswith("2000\tline 2000\n(lines 1-2000 of 6000; continue with start=2001)")
    assert result.data["truncated"] is True
    rest = await read(place, "a.txt", start=5999)
    assert rest.text == "5999\tline 5999\n6000\tline 6000\n(lines 5999-6000 of 6000)"
    assert rest.data["truncated"] is False


async def test_bytes_are_limited_too(place: Workspace) -> None:
    (place.root / "a.txt").write_text(("x" * 999 + "\n") * 500)
    result = await read(place, "a.txt")
    assert len(result.text) < 48 * 1024 + 200
    assert "continue with start=" in result.text


@pytest.mark.case("agent-15")
async def test_a_long_line_is_clipped_which_is_not_truncated(place: Workspace) -> None:
    (place.root / "bundle.js").write_text("x" * 650_000 + "\nshort\n")
    result = await read(place, "bundle.js")
    assert "…[648000 more characters clipped]\n2\tshort\n(1 long line clipped)" in result.text
    assert result.data["clipped"] == 1
    assert result.data["truncated"] is False
    assert len(result.text) < 2_200


async def test_control_characters_do_not_reach_the_model(place: Workspace) -> None:
    (place.root / "a.txt").write_bytes(b"\x1b[31mred\x1b[0m\x07 tab\there\n10%\r20%\nd\xc2\x85e\n")
    result = await read(place, "a.txt")
    assert result.text == "1\t\\x1b[31mred\\x1b[0m\\x07 tab\there\n2\t10%\\x0d20%\n3\td\\x85e"


async def test_other_encodings_are_decoded_and_named(place: Workspace) -> None:
    (place.root / "a.txt").write_bytes("これはテスト\r\n".encode("cp932"))
    assert (await read(place, "a.txt")).text == "1\tこれはテスト\n(Shift-JIS)"
    (place.root / "b.txt").write_bytes(b"\xff\xfe" + "a\nb".encode("utf-16-le"))
    assert (await read(place, "b.txt")).text == "1\ta\n2\tb\n(UTF-16 LE)"


async def test_an_empty_file_says_so(place: Workspace) -> None:
    (place.root / "a.txt").write_bytes(b"")
    assert (await read(place, "a.txt")).text == "(empty file)"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "PNG image, 10 bytes"),
        (b"\xff\xd8\xff\xe0abc", "JPEG image"),
        (b"\x7fELF\x02\x01\x01\0", "ELF program"),
        (b"SQLite format 3\0", "SQLite database"),
        (b"abc\0def", "contains NUL bytes, 7 bytes"),
        (bytes(range(1, 32)) * 20, "mostly control characters"),
        (b"\x1f\x8b\x08\x00", "gzip data"),
    ],
)
async def test_binary_files_are_refused_with_kind_and_size(place: Workspace, data: bytes, kind: str) -> None:
    (place.root / "a.bin").write_bytes(data)
    with pytest.raises(InvalidArguments, match=kind):
        await read(place, "a.bin")
    assert place.seen == {}


async def test_a_directory_is_listed_in_the_error(place: Workspace) -> None:
    for number in range(60):
        (place.root / f"f{number:02}").touch()
    (place.root / "a").mkdir()
    with pytest.raises(InvalidArguments, match=r"is a directory(?s:.*)a/\nf00\n(?s:.*)f48\n… 11 more"):
        await read(place, ".")


async def test_an_absent_file_names_its_nearest(place: Workspace) -> None:
    (place.root / "src" / "deep").mkdir(parents=True)
    (place.root / "src" / "deep" / "parser.py").touch()
    (place.root / "src" / "lexer.py").touch()
    with pytest.raises(NotFound, match=r"src/lexer\.py"):
        await read(place, "src/lexr.py")
    with pytest.raises(NotFound, match=r"src/deep/parser\.py"):
        await read(place, "parser.py")
    with pytest.raises(NotFound, match=r"There is no file 'other\.c'"):
        await read(place, "other.c")


async def test_unsaved_text_wins(place: Workspace) -> None:
    (place.root / "a.py").write_text("saved\n")
    place.buffers = {"a.py": Buffer("unsaved\n", 2), "new.py": Buffer("only here\n", 1)}
    result = await read(place, "a.py")
    assert result.text == "1\tunsaved\n(the editor's unsaved text)"
    assert result.seen == {"a.py": content_hash(b"unsaved\n")}
    assert "only here" in (await read(place, "new.py")).text


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "link", "dir/passwd"])
async def test_nothing_outside_is_read(place: Workspace, path: str) -> None:
    (place.root / "link").symlink_to("/etc/passwd")
    (place.root / "dir").symlink_to("/etc")
    with pytest.raises(OutsideWorkspace):
        await read(place, path)


@pytest.mark.case("agent-15")
async def test_a_huge_file_is_read_in_parts(place: Workspace) -> None:
    line = b"x" * 99 + b"\n"
    with (place.root / "big.log").open("wb") as file:
        for _ in range(17):
            file.write(line * 10_486)
    count = 17 * 10_486
    assert os.path.getsize(place.root / "big.log") > MAX_FILE_BYTES
    result = await read(place, "big.log", start=count - 1)
    assert result.text.startswith(f"{count - 1}\txxx")
    assert f"(lines {count - 1}-{count} of {count}; " in result.text
    assert result.seen == {}
    first = await read(place, "big.log", end=2)
    assert f"(lines 1-2 of {count}; " in first.text
    page = await read(place, "big.log")
    assert "continue with start=" in page.text and page.data["truncated"] is True
    with pytest.raises(InvalidArguments, match="fewer lines"):
        await read(place, "big.log", start=count + 5)


@pytest.mark.parametrize(
    ("data", "instead"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "Images cannot be shown"),
        (b"%PDF-1.7\n\0\1\2", "pdftotext"),
        (b"PK\x03\x04\0\0", "unzip -l"),
        (b"\x1f\x8b\x08\x00", "zcat"),
        (b"SQLite format 3\0", "sqlite3"),
        (b"\x7fELF\x02\x01\x01\0", "nm"),
        (b"a\0b", "xxd"),
    ],
)
async def test_what_is_no_text_says_what_to_do_instead(place: Workspace, data: bytes, instead: str) -> None:
    (place.root / "a.bin").write_bytes(data)
    with pytest.raises(InvalidArguments, match=instead):
        await read(place, "a.bin")
