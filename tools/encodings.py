"""What encoding the bytes of a file are in: certain where it can be, else the likeliest that loses nothing.

Whatever is chosen decodes the whole file and encodes back to the same bytes, so text outside an edit survives
exactly even where the guess is wrong. A wrong guess only shows as odd characters.
"""

import codecs
import re
from dataclasses import dataclass
from typing import Final

from tools.errors import InvalidArguments

SAMPLE: Final = 8192
"""Bytes looked at to tell binary from text."""
GUESSED: Final = 1 << 20
"""Bytes looked at to guess an encoding; the guess is then proved on all of them."""


class Binary(InvalidArguments):
    """The content is not text; `kind` names what it is."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"The content is binary ({kind}), not text.")
        self.kind = kind


class Unencodable(InvalidArguments):
    """Text that the file's encoding has no bytes for."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """`name` is for people, `codec` for Python. `bom` is the mark at the start of the file, if any.

    With `ascii_only` the encoding is unknown: bytes are shown one by one and only ASCII may be added.
    """

    name: str
    codec: str
    bom: bytes = b""
    errors: str = "strict"
    ascii_only: bool = False

    def decode(self, data: bytes) -> str:
        """The text after the mark. Exact: `encode_base` gives the same bytes back."""
        return data[len(self.bom) :].decode(self.codec, self.errors)

    def encode_base(self, text: str) -> bytes:
        """Text that was decoded from the file, back to its bytes, without the mark."""
        return text.encode(self.codec, self.errors)

    def check(self, added: str) -> None:
        """Refuse text that cannot be written in this encoding.

        Raises:
            Unencodable: naming the first character and what is possible.
        """
        try:
            added.encode("ascii" if self.ascii_only else self.codec)
        except UnicodeEncodeError as error:
            character = added[error.start]
            allowed = "only ASCII can be added safely" if self.ascii_only else "it has no such character"
            raise Unencodable(
                f"The file is in {self.name}, and {character!r} (U+{ord(character):04X}) cannot be written: "
                f"{allowed}. Use an escape of the language, or convert the file first."
            ) from error


UTF8: Final = Encoding("UTF-8", "utf-8")

# A longer mark first: UTF-32's begins with UTF-16's.
_MARKED: Final = (
    Encoding("UTF-8 with BOM", "utf-8", codecs.BOM_UTF8),
    Encoding("UTF-32 LE", "utf-32-le", codecs.BOM_UTF32_LE, "surrogatepass"),
    Encoding("UTF-32 BE", "utf-32-be", codecs.BOM_UTF32_BE, "surrogatepass"),
    Encoding("UTF-16 LE", "utf-16-le", codecs.BOM_UTF16_LE, "surrogatepass"),
    Encoding("UTF-16 BE", "utf-16-be", codecs.BOM_UTF16_BE, "surrogatepass"),
)

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"BM", "BMP image"),
    (b"\x00\x00\x01\x00", "icon image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"\x00asm", "WebAssembly module"),
    (b"wOF", "web font"),
    (b"RIFF", "RIFF media"),
)

_HIGH: Final = re.compile(rb"[\x80-\xff]+")
_PAIR: Final = re.compile(rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]")
_KANA: Final = re.compile("[\u3040-\u30ff]")
_HANGUL_LEADS: Final = range(0xB0, 0xC9)


def sniff(data: bytes) -> tuple[Encoding, str]:
    """The encoding of a whole file, and its text in it.

    Raises:
        Binary: it is no text.
    """
    for encoding in _MARKED:
        if data.startswith(encoding.bom) and _round_trips(encoding, data):
            return encoding, encoding.decode(data)
    sample = data[:SAMPLE]
    kind = binary_kind(sample)
    if kind is not None:
        raise Binary(kind)
    try:
        return UTF8, data.decode("utf-8")
    except UnicodeDecodeError:
        encoding = _legacy(data)
        return encoding, encoding.decode(data)


def binary_kind(sample: bytes) -> str | None:
    """What kind of binary the first bytes of a file are; None for text."""
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        return None
    known = next((kind for magic, kind in _MAGIC if sample.startswith(magic)), None)
    if b"\0" in sample:
        return known or "contains NUL bytes"
    control = len(sample.translate(None, bytes(range(0x20, 0x100)) + b"\t\n\r\f\b\x1b"))
    if control * 10 > len(sample) or (known is not None and control):
        return known or "mostly control characters"
    if known is not None and known.endswith("image") and known != "BMP image":
        return known
    return None


def _round_trips(encoding: Encoding, data: bytes) -> bool:
    try:
        return encoding.bom + encoding.encode_base(encoding.decode(data)) == data
    except UnicodeError:
        return False


def _legacy(data: bytes) -> Encoding:
    """The likeliest encoding of text that is not UTF-8, among those that give the same bytes back."""
    sample = data[:GUESSED]
    for encoding in _candidates(sample[: sample.rfind(b"\n") + 1] or sample):
        if _round_trips(encoding, data):
            return encoding
    return Encoding("an unknown 8-bit encoding", "latin-1", ascii_only=True)


def _candidates(data: bytes) -> list[Encoding]:
    damaged = data.decode("utf-8", "surrogateescape")
    beyond = [character for character in damaged if character > "\x7f"]
    escaped = sum("\udc80" <= character <= "\udcff" for character in beyond)
    if len(beyond) >= 4 * escaped:
        return [Encoding("UTF-8 with invalid bytes", "utf-8", errors="surrogateescape")]
    runs = _HIGH.findall(data)
    high = sum(map(len, runs))
    together = sum(len(run) for run in runs if len(run) > 1) / high
    found = [
        Encoding(name, codec)
        for name, codec in (("Shift-JIS", "cp932"), ("EUC-JP", "euc_jp"))
        if _kana_share(data, codec) >= 0.2
    ]
    if together >= 0.5:
        found += _double_byte(data)
    if together >= 0.6:
        found += _cyrillic(b"".join(runs))
    found.append(Encoding("Windows-1252", "cp1252"))
    return found


def _kana_share(data: bytes, codec: str) -> float:
    """Kana among the characters beyond ASCII: Japanese text always has some, nothing else has."""
    try:
        beyond = [character for character in data.decode(codec) if character > "\x7f"]
    except UnicodeError:
        return 0.0
    return len(_KANA.findall("".join(beyond))) / max(len(beyond), 1)


def _double_byte(data: bytes) -> list[Encoding]:
    """Chinese and Korean: told apart by where the bytes of their common characters lie."""
    pairs = _PAIR.findall(data)
    if not pairs:
        return []
    low = sum(pair[1] < 0x7F for pair in pairs) / len(pairs)
    hangul = sum(pair[0] in _HANGUL_LEADS for pair in pairs) / len(pairs)
    chinese = [Encoding("GBK", "gbk"), Encoding("GB18030", "gb18030")]
    korean = [Encoding("EUC-KR", "cp949")]
    if low > 0.15:
        return [Encoding("Big5", "big5"), *chinese, *korean]
    return korean + chinese if hangul > 0.97 and len(pairs) > 4 else chinese + korean


def _cyrillic(high: bytes) -> list[Encoding]:
    """Whole words beyond ASCII of single bytes; lower-case letters are the most frequent ones."""
    windows = sum(byte >= 0xE0 for byte in high)
    koi8 = sum(0xC0 <= byte < 0xE0 for byte in high)
    return [Encoding("Windows-1251", "cp1251") if windows >= koi8 else Encoding("KOI8-R", "koi8_r")]
