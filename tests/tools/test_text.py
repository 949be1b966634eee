"""Text with its own encoding and line endings: nothing is lost, positions map back."""

import random

import pytest

from tools.encodings import Binary, sniff
from tools.errors import InvalidArguments
from tools.text import Text, visible

SAMPLES = {
    "GBK": ("gbk", ["你好，世界。这是一个测试文件\n# 配置 two 文件\n", "# 中文注释\nx = 1\n"]),
    "Shift-JIS": ("cp932", ["これは日本語のテストです\nprint('two')\n", "表示する\n"]),
    "EUC-JP": ("euc_jp", ["これは日本語のテストです\n"]),
    "Big5": ("big5", ["這是一個測試檔案，請注意\nabc\n"]),
    "EUC-KR": ("cp949", ["한국어 주석입니다 테스트\n"]),
    "Windows-1252": ("latin-1", ["café two\n", "naïve\n", "été à la plage\n", "Ünïcödé straße\n"]),
    "Windows-1251": ("cp1251", ["Привет, мир! Это комментарий\n"]),
    "KOI8-R": ("koi8_r", ["Привет, мир! Это комментарий\n"]),
    "UTF-16 LE": ("utf-16-le", ["\ufeffone\r\n\U0001f600\n"]),
    "UTF-16 BE": ("utf-16-be", ["\ufeffone\r\n日本\n"]),
    "UTF-32 LE": ("utf-32-le", ["\ufeffone\n"]),
    "UTF-8 with BOM": ("utf-8", ["\ufeffé\n"]),
    "UTF-8": ("utf-8", ["é日本\n", "", "plain\n"]),
}


@pytest.mark.case("edit-table-encodings")
@pytest.mark.parametrize(
    ("name", "codec", "text"),
    [(name, codec, text) for name, (codec, texts) in SAMPLES.items() for text in texts],
)
def test_encodings_are_recognised(name: str, codec: str, text: str) -> None:
    data = text.encode(codec)
    found = Text.decode(data)
    assert found.encoding.name == name
    assert found.body == text.removeprefix("\ufeff")
    assert found.encode(found.body) == data


def test_whatever_the_bytes_they_survive() -> None:
    chance = random.Random(7)
    texts = 0
    for _ in range(3000):
        size = chance.randrange(0, 60)
        pool = chance.choice([range(9, 256), range(32, 256), range(128, 256), [65, 10, 13, 233, 0xE9, 0x81]])
        data = bytes(chance.choice(pool) for _ in range(size))
        data = chance.choice([b"", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\xff\xfe\0\0"]) + data
        try:
            text = Text.decode(data)
        except Binary:
            continue
        texts += 1
        assert text.encode(text.body) == data
    assert texts > 1500


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"a\0b", "NUL"),
        (b"\x89PNG\r\n\x1a\n", "PNG image"),
        (b"%PDF-1.7\x01", "PDF"),
        (b"\x01\x02\x03", "control"),
    ],
)
def test_what_is_no_text(data: bytes, kind: str) -> None:
    with pytest.raises(InvalidArguments, match=kind):
        sniff(data)


def test_files_that_only_begin_like_binary_ones_are_text() -> None:
    for data in (b"BM is a shop\n", b"MZ\n", b"RIFFs and chords\n", b"%PDF-like text\n", b"PK\n"):
        assert sniff(data)[0].name == "UTF-8"


@pytest.mark.parametrize(
    "pool", [["a", "é", "\r\n"], ["a", "\n", "\r\n"], ["a", "\n", "\r\n", "\r"], ["a", "\r"]]
)
def test_positions_of_the_flat_text_map_back(pool: list[str]) -> None:
    chance = random.Random(3)
    for _ in range(1500):
        body = "".join(chance.choice(pool) for _ in range(chance.randrange(0, 14)))
        text = Text.decode(body.encode())
        known = (0, 0)
        for flat in range(len(text.flat) + 1):
            at = text.position(flat)
            assert at == text.position(flat, known)
            expected = text.flat[:flat]
            if flat == len(text.flat) and not text.ends_with_newline:
                expected = expected[:-1]
            assert text.normal(body[:at]) == expected
            known = (flat, at) if chance.random() < 0.3 else known


def test_lines_end_with_lf_crlf_or_only_ever_cr() -> None:
    assert Text.decode(b"a\rb\nc").flat == "a\rb\nc\n"
    assert Text.decode(b"a\rb\rc").flat == "a\nb\nc\n"
    assert Text.decode("a\u2028b\x0bc\x0cd\x85e".encode()).flat.count("\n") == 1
    assert [Text.decode(data).ending for data in (b"a\r\nb\n", b"a\nb\r\n", b"a\rb", b"a")] == [
        "\r\n",
        "\n",
        "\r",
        "\n",
    ]


def test_characters_without_a_picture_are_shown_as_escapes() -> None:
    assert visible("a\tb\x1b\x7f\x85\u200b\udce9") == "a\tb\\x1b\\x7f\\x85\u200b\\xe9"
    assert visible("é" * 10, 4) == "éééé…[6 more characters clipped]"
