"""How fast secrets are looked for: in ordinary text, in logs with many of them, in a stream, in hostile text.

    python -m benchmarks.redaction [--quick] [--json] [--only GROUP]

Process time, the best of several runs. 200 values are known besides, as in a session that has met many.
"""

import random
import string
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Budget, Group, Measure, main
from tools.redaction import Redactor, Stream

RUNS = 5
KNOWN = 200
SIZE = 4_000_000
HOSTILE_SIZE = 1_000_000

ORDINARY = Budget("ordinary text", "MB/s", 20, most=False)
SECRETS = Budget("a log with a secret in every 20th line", "MB/s", 20, most=False)
STREAM = Budget("ordinary text as a stream of 4 KiB pieces", "MB/s", 20, most=False)
HOSTILE = Budget("a megabyte made to be slow, the worst of several", "s", 2)
NEVER_FREE = Budget("a short event that holds none", "µs", 100)


def ordinary() -> str:
    """Python source of this environment, up to 4 MB of it."""
    text = "".join(
        path.read_text("utf-8", "replace") for path in sorted(Path(random.__file__).parent.glob("*.py"))
    )
    return (text * (SIZE // len(text) + 1))[:SIZE]


def log(draw: random.Random) -> str:
    lines: list[str] = []
    for number in range(20_000):
        token = "".join(draw.choices(string.ascii_letters + string.digits, k=36))
        lines.append(
            f"2026-01-01T00:00:00Z request {number} Authorization: Bearer ghp_{token}"
            if number % 20 == 0
            else f"2026-01-01T00:00:00Z request {number} answered 200 in {number % 97} ms: /api/{number}"
        )
    return "\n".join(lines)


def hostile() -> list[str]:
    """Texts of a megabyte: names within values, headers within headers, ends and beginnings of tokens."""
    units = (
        "token=",
        "token=" * 50 + "\n",
        "token: a ",
        "cookie: a1b2=1234abcd9fXq;",
        "authorization=",
        "-eyJ",
        "aGVsbG8gdGhpcyBpcyB0ZXh0IG5v ",
        "-----BEGIN PRIVATE KEY-----\n" + "+" * 15_000 + "!\n",
        "-----BEGIN PRIVATE KEY-----\n" + "-x" * 7_500 + "!\n",
        "://u:" + "pass" * 8 + "1@h ",
    )
    return [(unit * (HOSTILE_SIZE // len(unit) + 1))[:HOSTILE_SIZE] for unit in units]


def redactor() -> Redactor:
    draw = random.Random(1)
    one = Redactor()
    for _ in range(KNOWN):
        one.know("".join(draw.choices(string.ascii_letters + string.digits, k=32)))
    return one


def best(action: Callable[[], object], runs: int) -> float:
    """Seconds of process time of the cheapest run."""
    cheapest = float("inf")
    for _ in range(runs):
        began = time.process_time()
        action()
        cheapest = min(cheapest, time.process_time() - began)
    return cheapest


def streamed(one: Redactor, text: str) -> None:
    stream = Stream(one)
    for at in range(0, len(text), 4096):
        stream.feed(text[at : at + 4096])
    stream.finish()


def speed(quick: bool = False) -> Iterator[Measure]:
    """Megabytes a second, by kind of text."""
    runs = 2 if quick else RUNS
    text, secret = ordinary(), log(random.Random(2))
    one = redactor()
    yield ORDINARY.of(len(text) / 1e6 / best(lambda: one.redact(text), runs))
    yield STREAM.of(len(text) / 1e6 / best(lambda: streamed(one, text), runs))
    yield SECRETS.of(len(secret) / 1e6 / best(lambda: redactor().redact(secret), runs))
    event = {"call_id": "01JD", "name": "grep", "text": "src/a.py:12: return value", "data": {"count": 1}}
    yield NEVER_FREE.of(best(lambda: [one.redact_value(event) for _ in range(1000)], runs) * 1000)
    yield HOSTILE.of(max(best(lambda text=text: redactor().redact(text), 1) for text in hostile()))


GROUPS = {"speed": Group(speed, (ORDINARY, STREAM, SECRETS, NEVER_FREE, HOSTILE))}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
