"""Tables beyond the paper: every method that scrl has, on the same questions with the same settings."""

from __future__ import annotations

from collections.abc import Iterator

from scrl.credit.methods import METHODS
from scrl.recipes.paper_cells import run_name, start_name
from scrl.recipes.paper_records import SERIES, Cell, Table

MODEL, BENCHMARK, BUDGET = "qwen2.5-3b", "amc", "32-16"
COLUMNS = {"pass@1": "pass@1", "pass@16": "pass@16", "labels right": "positive_accuracy", "tokens a step": "tokens"}
"""What is printed above, and the metric."""


def _cells() -> Iterator[Cell]:
    for column in ("pass@1", "pass@16"):
        yield Cell("methods", "", "start", column, column, None, start_name(MODEL), BENCHMARK)
    for method in METHODS:
        name = run_name(MODEL, BENCHMARK, BUDGET, method)
        for column, metric in COLUMNS.items():
            yield Cell("methods", "", method, column, metric, None, name, BENCHMARK)


OWN_TABLES: dict[str, Table] = {
    "methods": Table(
        "methods",
        "Every method on the same questions",
        "not in the paper",
        "pass@1 and pass@16 in % after training; how right positive labels were and what was sampled, over all steps.",
        tuple(_cells()),
        (SERIES["positive_accuracy"], SERIES["tokens"]),
    )
}
