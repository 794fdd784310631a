"""A completion against gold, as verl calls a reward function: it validates with it, and trains on nothing of it."""

from __future__ import annotations

from functools import cache
from typing import Any

from scrl.answers.judge import MathVerifyJudge
from scrl.answers.readers import get_reader
from scrl.evaluation.label_quality import is_right


@cache
def _judge() -> MathVerifyJudge:
    """One for all threads of a process."""
    return MathVerifyJudge()


def compute_score(
    data_source: str,  # noqa: ARG001 - as verl calls it
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,  # noqa: ARG001
    *,
    reader: str = "boxed",
    significant_digits: int | None = None,
) -> dict[str, float]:
    """Whether the answer is right, as `scrl evaluate` would grade it; without gold nothing is."""
    answer = get_reader(reader)(solution_str)
    if not ground_truth or answer is None:
        return {"score": 0.0, "acc": 0.0, "answered": float(answer is not None)}
    correct = float(is_right(answer, ground_truth, judge=_judge(), significant_digits=significant_digits))
    return {"score": correct, "acc": correct, "answered": 1.0}
