"""Asking a person for one key or one line, while the conversation goes on."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Collection

KEYS = {"y": "allow_once", "a": "allow_always", "n": "reject_once"}


def choose(ask: Callable[[], None], interrupted: Callable[[], bool], kinds: Collection[str]) -> str | None:
    """Put the question (`ask`) and wait for `y`, `a` or `n`; the kind of option it stands for.

    Keys of kinds that are not among `kinds` do nothing. None when `interrupted` says so. Only where standard
    input is a terminal. Keys that were typed before the question are not answers to it.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSAFLUSH)  # keeps Ctrl-C a signal
        ask()
        while not interrupted():
            if select.select([terminal], [], [], 0.1)[0]:
                key = os.read(terminal, 1).decode("ascii", "replace").lower()
                if KEYS.get(key) in kinds:
                    return KEYS[key]
                if not key:
                    return None
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    return None


def line(ask: Callable[[], None], interrupted: Callable[[], bool]) -> str | None:
    """Put a question and wait for a line; None at the end of input or when `interrupted` says so."""
    terminal = sys.stdin.fileno()
    termios.tcflush(terminal, termios.TCIFLUSH)
    ask()
    while not interrupted():
        if select.select([terminal], [], [], 0.1)[0]:
            typed = os.read(terminal, 65536)
            return typed.decode("utf-8", "replace").strip() if typed else None
    return None
