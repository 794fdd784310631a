"""What the other questions of a stream answered: votes at every question's last visit → p̄, the mean share elsewhere.

    p̄_q(a) = mean of p_{q′}(a) over the questions q′ ≠ q seen so far, each at its last visit

A wrong consensus is often the same few words for many questions: stock answers. No single group can show that; p̄ does,
without gold. Shares are exact fractions, so the order of groups and visits changes no bit of any result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from scrl.errors import InputError
from scrl.records import Elsewhere, Tally

MIN_OTHERS = 8
"""While fewer other questions have been seen, p̄ counts as 0: a mean over so few says little."""
REPEATED = "right answers repeat across questions (yes or no, A to D), set --credit.elsewhere-weight 0"
"""What to do where p̄ says nothing."""
NUM_STOCK = 3
"""The most popular answers elsewhere, this many, are called stock answers."""

Shares = Mapping[str, Fraction]
"""Answer → p(a) = n_a / N, exactly."""


@dataclass(frozen=True, eq=False)
class LastVotes:
    """The shares of every question's answers at its last visit; a new visit makes a new record."""

    shares_by_question: Mapping[str, Shares] = field(default_factory=dict)
    totals: Shares = field(default_factory=dict)
    """Σ_q p_q(a) of every answer."""

    def after(self, visits: Iterable[tuple[str, Tally]]) -> LastVotes:
        """With these (question, votes) in place of the questions' earlier ones."""
        return self._with(
            {
                question: {
                    answer: Fraction(count, tally.size)
                    for answer, count in zip(tally.keys_K, tally.counts_K, strict=True)
                }
                for question, tally in visits
            }
        )

    def _with(self, new: Mapping[str, Shares]) -> LastVotes:
        """With these shares in place of the questions' earlier ones."""
        shares_by_question, totals = dict(self.shares_by_question), dict(self.totals)
        for question, shares in new.items():
            for answer, share in shares_by_question.get(question, {}).items():
                totals[answer] -= share
                if not totals[answer]:
                    del totals[answer]
            for answer, share in shares.items():
                totals[answer] = totals.get(answer, Fraction()) + share
            shares_by_question[question] = shares
        return LastVotes(shares_by_question, totals)

    def elsewhere(self, question: str, keys_K: Iterable[str]) -> Elsewhere:
        """p̄ of a question's own answers, and the stock answers of all the others."""
        own = self.shares_by_question.get(question, {})
        others = len(self.shares_by_question) - (question in self.shares_by_question)
        if others < MIN_OTHERS:
            return Elsewhere(others)

        def sum_elsewhere(answer: str) -> Fraction:
            return self.totals.get(answer, Fraction()) - own.get(answer, Fraction())

        shares = {key: float(total / others) for key in keys_K if (total := sum_elsewhere(key))}
        # Only a question's own answers can lose rank, so a few candidates are enough.
        sums = {answer: float(sum_elsewhere(answer)) for answer in self._ranking[: NUM_STOCK + len(own)]}
        stock = sorted(sums, key=lambda answer: (-sums[answer], answer))[:NUM_STOCK]
        return Elsewhere(others, shares, tuple(answer for answer in stock if sums[answer]))

    @cached_property
    def _ranking(self) -> list[str]:
        """All answers, the most popular first; ties go to the smallest key."""
        return sorted(self.totals, key=lambda answer: (-float(self.totals[answer]), answer))

    def to_json(self) -> dict[str, dict[str, list[int]]]:
        """For a checkpoint: question → answer → [numerator, denominator]."""
        return {
            question: {answer: list(share.as_integer_ratio()) for answer, share in shares.items()}
            for question, shares in self.shares_by_question.items()
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Mapping[str, tuple[int, int]]]) -> LastVotes:
        """What `to_json` wrote."""
        return cls()._with(
            {
                question: {answer: Fraction(*ratio) for answer, ratio in shares.items()}
                for question, shares in saved.items()
            }
        )


def require_others(questions: Sequence[str], name: str) -> None:
    """Refuse a stream of a single question; `name` is the method's."""
    if len(set(questions)) < 2:
        raise InputError(
            f"method {name!r} compares a question's votes with those of other questions, and there is only one "
            "question. Give more questions, or use a method that looks at one at a time (scrl, ttrl)."
        )


def few_others(others: int) -> str:
    """What the first step says about p̄ where it starts at 0; `others` is how many there are in the whole stream."""
    first = f"the other questions' votes (p̄, stock answers) count once {MIN_OTHERS} of them have been seen"
    return f"{first}; there are only {others}, so they never count" if others < MIN_OTHERS else first
