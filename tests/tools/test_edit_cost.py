"""The cost of an edit, as the benchmark measures it."""

from pathlib import Path

import pytest

from benchmarks.edit import locate, write

pytestmark = [pytest.mark.budget, pytest.mark.case("edit-table-cost")]


def test_locating_and_applying_keeps_its_budget_at_every_tier() -> None:
    measured = list(locate())
    assert {found.detail for found in measured} > {
        "exact",
        "trailing-space",
        "indentation",
        "punctuation",
        "similar",
    }
    for found in measured:
        assert found.kept, f"{found.name}: {found.value:.2f} ms, budget {found.budget} ms"


def test_a_durable_write_costs_at_most_three_bare_synced_writes(tmp_path: Path) -> None:
    found = write(tmp_path.resolve())
    assert found.kept, f"{found.value:.2f} times a bare synced write"
