"""When a failed request is made again, and after which wait."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 30.0
LONGEST_ASKED: Final = 300.0
"""Seconds. A provider that asks for a longer wait is not waited for: the request fails and says so."""

STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return max(0.0, seconds)
    if not value:
        return None
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def backoff(attempt: int, asked: float | None = None) -> float:
    """Seconds before attempt `attempt` + 1: what was asked for, else doubling from 0.5 s to 30 s.

    Jitter spreads clients that failed together: a quarter less, or for an asked wait up to a tenth more.
    """
    if asked is not None:
        return asked * (1 + random.random() / 10)
    return min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1)) * (1 - random.random() / 4)


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None
