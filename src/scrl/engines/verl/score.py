"""A completion against gold, as verl calls a reward function: used for validation only, never for training."""

from __future__ import annotations

from typing import Any

from scrl.answers.classes import same_answer
from scrl.answers.readers import SOUND, get_reader
from scrl.evaluation.gold import bare_gold


def compute_score(
    data_source: str,  # noqa: ARG001 - as verl calls it
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,  # noqa: ARG001
    *,
    reader: str = "boxed",
    significant_digits: int | None = None,
) -> dict[str, float]:
    """Whether the answer is right, as `scrl evaluate` would grade it; without gold nothing is.

    `sound:`, which compares the completions of a group, is left out.
    """
    answer = get_reader(reader.removeprefix(SOUND))(solution_str)
    if not ground_truth or answer is None:
        return {"score": 0.0, "acc": 0.0, "answered": float(answer is not None)}
    correct = float(same_answer(answer, bare_gold(ground_truth), significant_digits=significant_digits))
    return {"score": correct, "acc": correct, "answered": 1.0}
