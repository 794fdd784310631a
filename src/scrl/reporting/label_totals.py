"""What the labels of a whole run add up to, and how often they were right.

The same definitions as in `metrics.jsonl`, over all groups of the run instead of one step's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from scrl.reporting.rollout_votes import QuestionVotes, Visit


@dataclass(frozen=True, slots=True)
class Ratio:
    """So many of so many; a tie that counts by its chance makes `part` a fraction."""

    part: float
    whole: int

    @property
    def share(self) -> float | None:
        """None where there is nothing to count."""
        return self.part / self.whole if self.whole else None


Outcomes = Iterable[float]
"""Zeros and ones, one for each thing that counts; none where the question does not arise."""


@dataclass(frozen=True, slots=True)
class Total:
    """One line of the account."""

    words: str
    outcomes: Callable[[Visit], Outcomes]
    needs_gold: bool = False


def has_gold(visit: Visit) -> bool:
    """Whether the completions of this visit were compared with a right answer."""
    return any(votes.is_right is not None for votes in visit.votes.values())


def add_up(questions: Iterable[QuestionVotes]) -> dict[str, Ratio]:
    """Every total over all visits, by its words."""
    visits = [visit for question in questions for visit in question.visits.values()]
    return {total.words: _ratio(total, visits) for total in TOTALS}


def _ratio(total: Total, visits: Iterable[Visit]) -> Ratio:
    outcomes = [
        float(outcome)
        for visit in visits
        if has_gold(visit) or not total.needs_gold
        for outcome in total.outcomes(visit)
    ]
    return Ratio(sum(outcomes), len(outcomes))


def _labelled(label: str) -> Callable[[Visit], Outcomes]:
    return lambda visit: [any(votes.label == label for votes in visit.votes.values())]


def _unanimous(visit: Visit) -> Outcomes:
    return [len(visit.votes) == 1 and None not in visit.votes]


def _missing(visit: Visit) -> Iterator[float]:
    for key, votes in visit.votes.items():
        yield from [key is None] * votes.count


def _completions_right(visit: Visit) -> Iterator[float]:
    for votes in visit.votes.values():
        yield from [votes.is_right is True] * votes.count


def _majority_right(visit: Visit) -> Outcomes:
    """The chance that the most frequent answer is right, a tie being broken at random; no answer is wrong."""
    counts = [votes.count for _, votes in visit.classes]
    tied = [votes.is_right is True for _, votes in visit.classes if votes.count == max(counts)]
    return [sum(tied) / len(tied) if tied else 0.0]


def _positive_right(visit: Visit) -> Outcomes:
    return [votes.is_right is True for votes in visit.votes.values() if votes.label == "positive"]


def _negative_wrong(visit: Visit) -> Outcomes:
    return [votes.is_right is not True for votes in visit.votes.values() if votes.label == "negative"]


def _truth_flagged(visit: Visit) -> Outcomes:
    return [votes.label == "negative" for votes in visit.votes.values() if votes.is_right]


TOTALS = (
    Total("groups with a positive label", _labelled("positive")),
    Total("groups with an answer ruled out", _labelled("negative")),
    Total("groups whose completions all agree", _unanimous),
    Total("completions without an answer", _missing),
    Total("completions that are right", _completions_right, needs_gold=True),
    Total("most frequent answer is right", _majority_right, needs_gold=True),
    Total("positive label is right", _positive_right, needs_gold=True),
    Total("ruled-out answer is wrong", _negative_wrong, needs_gold=True),
    Total("right answer was ruled out, of the groups that gave it", _truth_flagged, needs_gold=True),
)
