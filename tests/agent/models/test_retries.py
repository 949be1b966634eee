"""How long to wait before another try."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agent.models.retries import LONGEST_WAIT, asked_wait, backoff


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "9"}, 9.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_what_a_provider_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_wait(headers) == seconds


def test_a_date_to_come_and_a_date_gone_by() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=20)
    wait = asked_wait({"retry-after": format_datetime(soon, usegmt=True)})
    assert wait is not None and 18 < wait <= 20
    assert asked_wait({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0


def test_waits_double_up_to_a_bound_and_never_agree() -> None:
    for attempt in range(1, 12):
        full = min(LONGEST_WAIT, 0.5 * 2 ** (attempt - 1))
        waits = {backoff(attempt) for _ in range(50)}
        assert len(waits) > 40
        assert all(0.75 * full <= wait <= full for wait in waits)


def test_an_asked_wait_is_never_cut_short() -> None:
    assert all(4.0 <= backoff(1, asked=4.0) <= 4.4 for _ in range(50))
    assert backoff(3, asked=0.0) == 0.0
