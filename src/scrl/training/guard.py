"""The label-free guard: is the run still healthy? It looks at what the model writes, never at gold.

Each rule compares the mean over the last `window` steps with that of the first `window` steps. A run whose rewards come
from its own votes can agree with itself ever more and be wrong; these are the signs of it that need no answer key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scrl.config import GuardSettings

WATCHED = (
    "same_answer_share", "distinct_answers", "entropy_mean", "length_mean", "truncated_share", "label_flip_share",
    "no_answer_share", "stock_label_share",
)  # fmt: skip
"""The metrics the guard looks at."""


def alarms(history: Sequence[Mapping[str, Any]], settings: GuardSettings) -> list[str]:
    """What is wrong after these steps, in words; nothing before two windows have passed."""
    if settings.mode == "off" or len(history) < 2 * settings.window:
        return []
    first, last = _means(history[: settings.window]), _means(history[-settings.window :])
    found = [
        _ceiling(
            first, last, "same_answer_share", settings.max_same_answer_share, "of the questions get the same answer"
        ),
        _ceiling(first, last, "stock_label_share", settings.max_stock_label_share, "of the labels are stock answers"),
        _ceiling(first, last, "label_flip_share", settings.max_label_flip_share, "of the labels change between visits"),
        _rise(first, last, "truncated_share", settings.max_truncated_rise, "completions are cut"),
        _rise(first, last, "no_answer_share", settings.max_no_answer_rise, "completions have no answer"),
        _floor(first, last, "entropy_mean", settings.min_entropy_ratio, "entropy has collapsed"),
        _floor(first, last, "length_mean", settings.min_length_ratio, "completions have become short"),
        _length_growth(first, last, settings.max_length_ratio),
    ]
    return [alarm for alarm in found if alarm]


def _means(window: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {key: [line[key] for line in window if line.get(key) is not None] for key in WATCHED}
    return {key: sum(values) / len(values) for key, values in found.items() if values}


def _ceiling(first: Mapping[str, float], last: Mapping[str, float], key: str, limit: float, words: str) -> str | None:
    """Above the limit, and not so from the start: yes-or-no questions share their answers in a healthy run too."""
    value, start = last.get(key), first.get(key, 0.0)
    return (
        f"{value:.0%} {words}, up from {start:.0%}" if value is not None and value > max(limit, start + 0.1) else None
    )


def _rise(first: Mapping[str, float], last: Mapping[str, float], key: str, limit: float, words: str) -> str | None:
    if key not in first or key not in last or last[key] - first[key] <= limit:
        return None
    return f"{last[key]:.0%} of the {words}, up from {first[key]:.0%}"


def _floor(first: Mapping[str, float], last: Mapping[str, float], key: str, limit: float, words: str) -> str | None:
    if key not in first or key not in last or last[key] >= limit * first[key]:
        return None
    return f"{words}: {last[key]:.3g}, was {first[key]:.3g}"


def _length_growth(first: Mapping[str, float], last: Mapping[str, float], limit: float) -> str | None:
    if "length_mean" not in first or "length_mean" not in last or last["length_mean"] <= limit * first["length_mean"]:
        return None
    return f"completions have become long: {last['length_mean']:.0f} tokens, were {first['length_mean']:.0f}"
