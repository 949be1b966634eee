"""Secrets in base64: a run that decodes to text is looked into."""

import binascii
from collections.abc import Callable
from typing import Final

RUN: Final = rb"[A-Za-z0-9+/_-]{24,}={0,2}"
_CONTROL: Final = bytes(set(range(32)) - {9, 10, 13}) + b"\x7f"
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def decoded(run: bytes) -> bytes | None:
    """The text that a run encodes; None where it encodes none."""
    run = run.rstrip(b"=").translate(_URL_SAFE)
    run = run[: len(run) - (1 if len(run) % 4 == 1 else 0)]
    try:
        # A glance at the beginning first: pictures and names are not text.
        if (head := binascii.a2b_base64(run[:24])) and head.translate(None, _CONTROL) != head:
            return None
        text = binascii.a2b_base64(run + b"=" * (-len(run) % 4))
    except binascii.Error:
        return None
    if text.translate(None, _CONTROL) != text:
        return None
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(text) - 3 or error.end < len(text) - 3:  # a character may have been cut
            return None
    return text


def hides(run: bytes, secret: Callable[[bytes], bool]) -> bool:
    """Whether a run encodes text in which `secret` finds one."""
    text = decoded(run)
    return text is not None and secret(text)
