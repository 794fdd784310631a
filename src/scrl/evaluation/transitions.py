"""What training did to single questions: learned, kept, lost or never right, by their majority before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from scrl.metrics import PASS_OR_MAJ

TRANSITIONS = {"learned": (False, True), "kept": (True, True), "lost": (True, False), "never right": (False, False)}
"""Whether the majority was right before and after."""
TIES = "a tie of two counts as right here, as half in maj@k"
"""How `count_transitions` counts, for readers who see its numbers beside maj@k."""


def majority_transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int] | None:
    """The transitions between two evaluations of the same questions, by maj@k with the largest k they share, if any."""
    names = [key.removesuffix("_by_question") for key in before if key.endswith("_by_question") and key in after]
    votes = [(int(match[2]), name) for name in names if (match := PASS_OR_MAJ.fullmatch(name)) and match[1] == "maj"]
    if not votes:
        return None
    key = f"{max(votes)[1]}_by_question"
    return count_transitions(before[key], after[key])


def count_transitions(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, int]:
    """How many of the questions that both have were learned, kept, lost and never right.

    Values are chances that the majority is right: a tie of two counts as right, one of three does not.
    """
    changes = Counter((before[name] >= 0.5, after[name] >= 0.5) for name in before if name in after)
    return {name: changes[change] for name, change in TRANSITIONS.items()}
