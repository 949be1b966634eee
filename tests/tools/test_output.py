"""Output of any size and kind: bounded, clean, with counts, and whole on disk."""

import os
import time
from pathlib import Path

import psutil
import pytest

from tools.output import Cleaner, Output, clean
from tools.spool import HEAD, RING, Spool


def _fed(file: Path, data: bytes, step: int = 65536, limit: int = 30_000) -> tuple[Output, str, bool]:
    output = Output(file, limit)
    for start in range(0, len(data), step):
        output.feed(data[start : start + step])
    text, clipped = output.text()
    return output, text, clipped


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"plain\n", "plain\n"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"10%\r20%\r100%\ndone\n", "100%\ndone\n"),
        (b"10%\r\x1b[K20%\r\x1b[K\n", "20%\n"),
        (b"\x1b[?2004hprompt\x1b[?2004l \x1b[1;31mred\x1b[0m\n", "prompt red\n"),
        (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "textlink\n"),
        (b"N\x08NA\x08A\n", "NA\n"),
        (b"bell\x07\n", "bell\n"),
        (b"a\0b\0", "a\u2400b\u2400"),
        ("é€𝄞".encode(), "é€𝄞"),
        (b"\xff\xfe" * 40, "\ufffd"),
        (b"", ""),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 4096])
@pytest.mark.case("agent-13")
def test_what_only_a_terminal_understands_is_folded(
    tmp_path: Path, raw: bytes, expected: str, step: int
) -> None:
    output, text, clipped = _fed(tmp_path / "out", raw, step)
    assert (text, clipped) == (expected, False)
    assert output.spool.content() == raw


def test_a_binary_file_becomes_little(tmp_path: Path) -> None:
    raw = Path("/bin/ls").read_bytes()
    output, text, _ = _fed(tmp_path / "out", raw)
    assert len(text) < 31_000
    assert not any(ord(sign) < 32 and sign not in "\n\t" for sign in text)
    assert output.bytes == len(raw)


def test_line_feeds_are_never_lost() -> None:
    raw = b"".join(bytes([index % 256]) * (index % 7) + b"\n" for index in range(2000))
    raw = raw.replace(b"\x08", b"\x09")  # a backspace may take what is before it, not a line feed
    cleaner = Cleaner()
    text = "".join(cleaner.feed(raw[start : start + 11]) for start in range(0, len(raw), 11)) + cleaner.rest()
    assert text.count("\n") == raw.count(b"\n")


def test_the_way_output_was_cut_into_chunks_does_not_show() -> None:
    raw = ("\x1b[31mé\x1b[0m 1%\r2%\r\n\x1b]0;t\x07z\b\b" * 50).encode()
    whole = clean(raw.decode())
    for step in (1, 2, 5, 64):
        cleaner = Cleaner()
        parts = [cleaner.feed(raw[start : start + step]) for start in range(0, len(raw), step)]
        assert "".join(parts) + cleaner.rest() == whole


@pytest.mark.case("agent-13")
def test_both_ends_are_shown_with_exact_counts(tmp_path: Path) -> None:
    raw = b"".join(b"%d\n" % number for number in range(1, 200_001))
    output, text, clipped = _fed(tmp_path / "out", raw)
    assert clipped
    assert len(text) <= 30_200
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("199999\n200000\n")
    head, _, rest = text.partition("[… ")
    said, _, tail = rest.partition(" …]\n")
    shown = head.count("\n") + tail.count("\n")
    assert said.startswith(f"{200_000 - shown:,} lines, {len(raw) - len(head) - len(tail):,} bytes left out")
    assert str(tmp_path / "out") in said
    assert output.spool.content() == raw


@pytest.mark.parametrize("size", [29_000, 30_000, 30_001, 31_000])
def test_nothing_is_left_out_that_fits(tmp_path: Path, size: int) -> None:
    raw = (b"x" * 99 + b"\n") * (size // 100) + b"y" * (size % 100)
    _, text, clipped = _fed(tmp_path / "out", raw, 777)
    assert clipped == (size > 30_000)
    assert clipped or text == raw.decode()


@pytest.mark.case("agent-13")
def test_thirty_megabytes_on_one_line(tmp_path: Path) -> None:
    base = psutil.Process().memory_info().rss
    output = Output(tmp_path / "out")
    for _ in range(480):
        output.feed(b"x" * 65536)
    text, clipped = output.text()
    assert clipped
    assert len(text) <= 30_200
    assert "0 lines, " in text
    assert psutil.Process().memory_info().rss - base < 32 * 1024 * 1024


@pytest.mark.case("agent-13")
def test_megabytes_of_progress_bars_become_their_last_drawing(tmp_path: Path) -> None:
    _, text, clipped = _fed(tmp_path / "out", b"fetched 10%\r" * 500_000 + b"fetched 100%\n")
    assert (text, clipped) == ("fetched 100%\n", False)


def test_a_hundred_megabytes_are_cheap(tmp_path: Path) -> None:
    base = psutil.Process().memory_info().rss
    block = b"".join(b"line %d of the output\n" % number for number in range(10_000))
    output, fed = Output(tmp_path / "out"), 0
    began = time.process_time()
    while fed < 100_000_000:
        output.feed(block)
        fed += len(block)
    assert time.process_time() - began < 2
    assert output.text()[1]
    output.spool.finish()
    content = output.spool.content()
    assert psutil.Process().memory_info().rss - base < 64 * 1024 * 1024
    assert len(content) < HEAD + RING + 200
    assert content.startswith(b"line 0 of")
    assert content.endswith(b"line 9999 of the output\n")
    assert f"{fed - HEAD - RING:,} bytes were not kept".encode() in content


def test_the_file_is_in_reading_order_past_the_cap(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "out")
    lines = [b"%09d\n" % number for number in range(2_300_000)]
    for start in range(0, len(lines), 5000):
        spool.write(b"".join(lines[start : start + 5000]))
    spool.finish()
    head, _, rest = spool.content().partition(b"\n[")
    tail = rest.partition(b"]\n")[2]
    whole = b"".join(lines)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(tail) == RING
    spool.close()
    assert not (tmp_path / "out").exists()


def test_output_goes_on_when_it_cannot_be_kept(tmp_path: Path) -> None:
    _, text, clipped = _fed(tmp_path / "missing" / "out", b"line\n" * 20_000)
    assert clipped
    assert "could not be kept: No such file or directory" in text
    assert text.endswith("line\n")


def test_the_file_never_follows_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.symlink(victim, tmp_path / "out")
    _fed(tmp_path / "out", b"x" * 100_000)
    assert victim.read_text() == "precious"
