"""What training did to single questions: learned, kept, lost or never right, by their majority before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scrl.metrics import PASS_OR_MAJ

TRANSITIONS = {"learned": (False, True), "kept": (True, True), "lost": (True, False), "never right": (False, False)}
"""Whether the majority was right before and after."""


def transition(before: float, after: float) -> str:
    """Of one question, from the chance that its majority is right; a tie of two is right, one of three is not."""
    change = (before >= 0.5, after >= 0.5)
    return next(name for name, wanted in TRANSITIONS.items() if wanted == change)


def majority_transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int] | None:
    """Of two evaluations of the same questions, by maj@k with the largest k that both have; None: they have none."""
    names = [key.removesuffix("_by_question") for key in before if key.endswith("_by_question") and key in after]
    votes = [(int(found[2]), name) for name in names if (found := PASS_OR_MAJ.fullmatch(name)) and found[1] == "maj"]
    if not votes:
        return None
    key = f"{max(votes)[1]}_by_question"
    return count_transitions(before[key], after[key])


def transition_words(counts: Mapping[str, int]) -> str:
    """`5 learned, 11 kept, 9 lost, 58 never right`."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def count_transitions(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, int]:
    """How many of the questions that both have were learned, kept, lost and never right."""
    found = [transition(before[name], after[name]) for name in before if name in after]
    return {name: found.count(name) for name in TRANSITIONS}
