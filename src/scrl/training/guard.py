"""The label-free guard: is the run still healthy? It looks at what the model writes, never at gold.

Each rule compares the mean over the last `window` steps with that of the first `window` steps. A run whose rewards come
from its own votes can agree with itself ever more and be wrong; these are the signs that need no answer key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from scrl.config import GuardSettings, RunConfig
from scrl.sampling.settings import ALL_EQUAL

WATCHED = (
    "same_answer_share", "entropy_mean", "length_mean", "truncated_share", "label_flip_share",
    "no_answer_share", "stock_label_share",
)  # fmt: skip
"""The metrics the guard looks at."""
CEILINGS = {
    "same_answer_share": (0.5, "of the questions get the same answer"),
    "stock_label_share": (0.6, "of the labels are stock answers"),
    "label_flip_share": (0.5, "of the labels change between visits"),
}
"""At most so much, or 0.1 more than at the start: yes-or-no questions share their answers in a healthy run too."""
RISES = {
    "truncated_share": (0.3, "of the completions are cut"),
    "no_answer_share": (0.3, "of the completions have no answer"),
}
"""At most so much more than at the start."""
FLOORS = {
    "entropy_mean": (0.02, "entropy has collapsed"),
    "length_mean": (0.33, "completions have become short"),
}
"""The least multiple of what it was at the start."""
LONGEST = 3.0
"""The largest multiple of the length at the start."""
NEARLY_ALL = 0.9
"""Above this share, completions without an answer, or unanimous groups, are named as the problem."""


def alarms(history: Sequence[Mapping[str, Any]], settings: GuardSettings) -> list[str]:
    """What is wrong after these steps, in words; nothing before two windows have passed."""
    return list(_problems(history, settings).values())


def new_alarms(history: Sequence[Mapping[str, Any]], settings: GuardSettings) -> list[str]:
    """What is wrong after these steps, and was not after all but the last of them."""
    before = _problems(history[:-1], settings)
    return [words for key, words in _problems(history, settings).items() if key not in before]


def _problems(history: Sequence[Mapping[str, Any]], settings: GuardSettings) -> dict[str, str]:
    """What is wrong, in words, by the metric that shows it."""
    if settings.mode == "off" or len(history) < 2 * settings.window:
        return {}
    first = _means(history[: settings.window], least=1)
    last = _means(history[-settings.window :], least=settings.window / 2)
    both = first.keys() & last.keys()
    problems = {}
    for key, (limit, words) in CEILINGS.items():
        if key in last and last[key] > max(limit, first.get(key, 0.0) + 0.1):
            rise = f", up from {first[key]:.0%}" if key in first else ""
            problems[key] = f"{last[key]:.0%} {words}{rise}"
    for key, (limit, words) in RISES.items():
        if key in both and last[key] - first[key] > limit:
            problems[key] = f"{last[key]:.0%} {words}, up from {first[key]:.0%}"
    for key, (limit, words) in FLOORS.items():
        if key in both and last[key] < limit * first[key]:
            problems[key] = f"{words}: {last[key]:.3g}, was {first[key]:.3g}"
    if "length_mean" in both and last["length_mean"] > LONGEST * first["length_mean"]:
        lengths = f"{last['length_mean']:.0f} tokens, were {first['length_mean']:.0f}"
        problems["length_mean"] = f"completions have become long: {lengths}"
    return problems


def _means(window: Sequence[Mapping[str, Any]], *, least: float) -> dict[str, float]:
    """The mean of each metric over the steps that have it, if these are enough.

    Labels can change only from the second epoch on, and the first step of that has a handful of questions.
    """
    values = {key: [line[key] for line in window if line.get(key) is not None] for key in WATCHED}
    return {key: fmean(of_key) for key, of_key in values.items() if len(of_key) >= least}


def why_no_signal(steps: Sequence[Mapping[str, Any]], config: RunConfig) -> str:
    """Why these steps, lines of metrics.jsonl, taught nothing, and what to change."""

    def is_mostly(name: str) -> bool:
        return bool(sum(step.get(name, 0) for step in steps) > NEARLY_ALL * len(steps))

    if not config.sampling.temperature:
        return ALL_EQUAL
    if is_mostly("no_answer_share"):
        how = "another reader, prompt.instruction or a longer sampling.max_tokens; rollouts.jsonl has them"
        return f"hardly any completion has an answer ({config.reader}). Try {how}."
    if is_mostly("unanimous_share"):
        return "completions agree already. Try harder questions, more completions or a higher sampling.temperature."
    return "nothing was learned. Sample more completions, or check the reader."
