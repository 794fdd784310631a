"""What the labels of a whole run add up to, and how often they were right.

The same definitions as in `metrics.jsonl`, over all groups of the run instead of one step's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scrl.reporting.rollout_votes import Visit
from scrl.reporting.tables import Ratio

Outcomes = Callable[[Visit], Iterable[float]]
"""Zeros and ones, one for each thing that counts in a visit; none where the question does not arise."""


def has_gold(visit: Visit) -> bool:
    """Whether the completions of this visit were compared with a right answer."""
    return any(votes.is_right is not None for votes in visit.votes.values())


def add_up(visits: Sequence[Visit]) -> dict[str, Ratio]:
    """Every total over all visits, by its words."""
    graded = [visit for visit in visits if has_gold(visit)]
    return {words: _ratio(outcomes, visits) for words, outcomes in TOTALS.items()} | {
        words: _ratio(outcomes, graded) for words, outcomes in TOTALS_WITH_GOLD.items()
    }


def _ratio(outcomes: Outcomes, visits: Iterable[Visit]) -> Ratio:
    found = [float(outcome) for visit in visits for outcome in outcomes(visit)]
    return Ratio(sum(found), len(found))


def _completions(holds: Callable[[str | None, bool | None], bool]) -> Outcomes:
    """For every completion, whether something holds for its answer and for whether it is right."""
    return lambda visit: (holds(key, votes.is_right) for key, votes in visit.votes.items() for _ in range(votes.count))


def _majority_right(visit: Visit) -> Iterable[float]:
    """The chance that the most frequent answer is right, a tie being broken at random; no answer is wrong."""
    counts = [votes.count for _, votes in visit.classes]
    tied = [votes.is_right is True for _, votes in visit.classes if votes.count == max(counts)]
    return [sum(tied) / len(tied) if tied else 0.0]


TOTALS: dict[str, Outcomes] = {
    "groups with a positive label": lambda visit: [any(v.label == "positive" for v in visit.votes.values())],
    "groups with an answer ruled out": lambda visit: [any(v.label == "negative" for v in visit.votes.values())],
    "groups whose completions all agree": lambda visit: [len(visit.votes) == 1 and None not in visit.votes],
    "completions without an answer": _completions(lambda key, _: key is None),
}
TOTALS_WITH_GOLD: dict[str, Outcomes] = {
    "completions that are right": _completions(lambda _, is_right: is_right is True),
    "most frequent answer is right": _majority_right,
    "positive label is right": lambda visit: [
        votes.is_right is True for votes in visit.votes.values() if votes.label == "positive"
    ],
    "ruled-out answer is wrong": lambda visit: [
        votes.is_right is not True for votes in visit.votes.values() if votes.label == "negative"
    ],
    "right answer was ruled out, of the groups that gave it": lambda visit: [
        votes.label == "negative" for votes in visit.votes.values() if votes.is_right
    ],
}
