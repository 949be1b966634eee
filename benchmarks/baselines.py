"""The committed figures: `baselines.json`, and the same as a table in `docs/benchmarks.md`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Measure, figure

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "baselines.json"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: written by --update-baselines -->\n", "<!-- /figures -->\n"

Baselines = Mapping[str, list[dict[str, Any]]]
"""By benchmark: each with name, value, unit, budget (or null), most, and the class of the machine."""


def load() -> Baselines:
    return json.loads(FILE.read_text(encoding="utf-8"))


def committed() -> dict[tuple[str, str], float]:
    """The committed figure by benchmark and name."""
    return {(benchmark, row["name"]): row["value"] for benchmark, rows in load().items() for row in rows}


def save(measures: Mapping[str, Iterable[Measure]], machine: str) -> None:
    """Replace what is committed of these benchmarks, in the file and on the page; others stay."""
    fresh = {
        benchmark: [
            {
                "name": one.name,
                "value": float(f"{one.value:.3g}"),
                "unit": one.unit,
                "budget": one.budget,
                "most": one.most,
                "machine": machine,
            }
            for one in found
        ]
        for benchmark, found in measures.items()
    }
    merged = dict(sorted({**load(), **fresh}.items()))
    FILE.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}{table(merged)}{END}{tail}", encoding="utf-8")


def table(baselines: Baselines) -> str:
    """Markdown: one table for each benchmark and class of machine."""
    parts: list[str] = []
    for benchmark, rows in baselines.items():
        for machine in dict.fromkeys(row["machine"] for row in rows):
            parts.append(
                f"### {benchmark}\n\nOn {machine}.\n\n| Measure | Figure | Budget |\n| --- | --- | --- |"
            )
            parts += [_row(row) for row in rows if row["machine"] == machine]
            parts.append("")
    return "\n".join(["", *parts, ""])


def _row(row: Mapping[str, Any]) -> str:
    budget = row["budget"]
    bound = "" if budget is None else f"{'≤' if row['most'] else '≥'} {figure(budget)} {row['unit']}"
    return f"| {row['name']} | {figure(row['value'])} {row['unit']} | {bound} |"
