"""What the paper prints: its tables, and what its figures show. `paper_cells` has the numbers, `catalogue` makes runs.

Where the paper contradicts itself, it is said here.
"""

from __future__ import annotations

from scrl.recipes.paper_cells import (
    ablation_cells,
    bare_name,
    dynamics_cells,
    entropy_cells,
    failure_cells,
    generalisation_cells,
    label_cells,
    llama_cells,
    main_cells,
    reasoning_cells,
    section_name,
    threshold_cells,
)
from scrl.recipes.paper_records import GAIN, SERIES, Cell, Inconsistency, Series, Table

__all__ = ["KNOWN_INCONSISTENCIES", "SERIES", "TABLES", "Cell", "Series", "Table"]


def _series(*names: str) -> tuple[Series, ...]:
    return tuple(SERIES[name] for name in names)


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "table-main",
            "Main results on various reasoning benchmarks",
            "tab:main_results",
            "pass@1 in % of two Qwen models on five benchmarks at two budgets; Δ is SCRL over TTRL.",
            tuple(main_cells()),
        ),
        Table(
            "table-llama",
            "Pass@1 accuracy on Llama-3-Instruct models",
            "tab:main_results2",
            "pass@1 in % at 64/32; MATH-500 for the 1B model, AMC for the 8B; Δ is over COMPASS and RESTRAIN.",
            tuple(llama_cells()),
        ),
        Table(
            "table-ablation",
            "Ablation study of SCRL components on Qwen2.5-3B",
            "tab:ablation",
            "pass@1 in % with one part of SCRL taken out; the arrows compare with the whole of it.",
            tuple(ablation_cells()),
            not_in_paper=("ablation budget",),
        ),
        Table(
            "table-generalisation",
            "Generalization performance of Qwen2.5-3B trained on AIME25",
            "tab:general_results",
            "pass@1 and pass@16 in % on benchmarks that were not trained on.",
            tuple(generalisation_cells()),
            not_in_paper=("budget",),
        ),
        Table(
            "table-thresholds",
            "Parameter analysis of τ_pos and τ_neg on Qwen2.5-Math-7B",
            "tab:hyperment",
            "pass@1 in % at 64/32; the last row is the main configuration.",
            tuple(threshold_cells("table-thresholds")),
        ),
        Table(
            "table-margin-entropy",
            "Parameter analysis of τ_marg and λ_H on Qwen2.5-Math-7B",
            "tab:hyperment2",
            "pass@1 in % at 64/32; the last row is the main configuration.",
            tuple(threshold_cells("table-margin-entropy")),
        ),
        Table(
            "table-entropy",
            "Average trajectory-level entropy for correct and incorrect answers",
            "tab:entropy",
            "Nats a token of the start model's completions, as training samples them.",
            tuple(entropy_cells()),
            measured_with="rollouts",
            not_in_paper=("rollout completions",),
        ),
        Table(
            "table-reasoning",
            "Pass@1 accuracy on large reasoning models using Qwen3-4B",
            "tab:lrm",
            "pass@1 in % on AIME25, thinking, with completions of at most 10k and 15k tokens; Δ is SCRL over TTRL.",
            tuple(reasoning_cells()),
        ),
        Table(
            "figure-labels",
            "Statistics of positive and negative pseudo-label estimation on AMC using Qwen2.5-3B",
            "fig:label_accuracy",
            "How right the labels are and how many there are, step by step.",
            tuple(label_cells()),
            _series("positive_accuracy", "positive_share", "negative_accuracy", "negative_answers"),
            "training",
            ("budget", "curves"),
        ),
        Table(
            "figure-dynamics-3b",
            "Training dynamics of SCRL and TTRL on Qwen2.5-3B",
            "fig:qwen25-3b-train-dynamic",
            "pass@1 throughout training, of the completions that each step samples.",
            tuple(dynamics_cells("figure-dynamics-3b", "qwen2.5-3b")),
            _series("pass@1"),
            "training",
            ("budget", "curves"),
        ),
        Table(
            "figure-dynamics-7b",
            "Training dynamics of SCRL and TTRL on Qwen2.5-Math-7B",
            "fig:qwen25math-train-dynamic",
            "pass@1 throughout training, of the completions that each step samples.",
            tuple(dynamics_cells("figure-dynamics-7b", "qwen2.5-math-7b")),
            _series("pass@1"),
            "training",
            ("budget", "curves"),
        ),
        Table(
            "failure-minerva",
            "Failure analysis: SCRL below TTRL on Minerva with Qwen2.5-3B",
            "Failure Analysis",
            "Are answers fragmented, and does SCRL abstain? pass@1 in %, the others averaged over a run's steps.",
            tuple(failure_cells()),
            _series("distinct_answers", "abstention"),
        ),
    )
}
"""Every table with results, every figure with data, and the failure analysis."""


ILLUSTRATIONS = {"fig:intro": "a drawing of weak consensus", "fig:overview": "a drawing of the method"}
"""The figures that show no data."""


def _gain_of_means(budget: str, model: str, printed: float, implied: float) -> Inconsistency:
    place = (section_name(budget), f"{bare_name(model)} {GAIN}", "Avg", GAIN)
    reason = "the difference of the rounded averages; the average of the gains, rounded once, is another"
    return Inconsistency("table-main", place, printed, implied, reason)


KNOWN_INCONSISTENCIES = (
    _gain_of_means("32-16", "qwen2.5-math-7b", 7.7, 7.64),
    _gain_of_means("64-32", "qwen2.5-3b", 0.7, 0.64),
    _gain_of_means("64-32", "qwen2.5-math-7b", 7.9, 7.96),
    Inconsistency(
        "table-thresholds",
        ("Qwen2.5-Math-7B", "τ_pos 0.375, τ_neg 0.125", "AMC", "pass@1"),
        67.5,
        68.5,
        "the main configuration, which table-main and table-margin-entropy print as 68.5",
    ),
)
