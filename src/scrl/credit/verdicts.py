"""Votes that are still coming in → whether the verdict stands already.

n of N completions are drawn, r = N − n are to come. n_j counts class j among those drawn, n₁ the largest, n₂ the
second. A completion to come joins any class, makes a new one, or has no answer. Equality of answers is an equivalence,
so that with each of them one class grows by one, or none does, and

    n_j ≤ final count of j ≤ n_j + r,        of a class not yet seen: 0 ≤ … ≤ r.

One exception is provided for. A class of several canonical keys was merged by the judge because the keys have the same
neighbours (answers/classes.py), and a later answer that the judge calls equal to some of them alone would split it. Two
classes never grow together: what tells them apart stays. So n_j is a sure upper bound before r is added, and the sure
lower bound is `firm`, the completions of the class's largest key. Taken for granted is that the judge says the same of
every spelling of a key, and in time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from scrl.answers.classes import Classes
from scrl.credit.labels import SLACK


@dataclass(frozen=True, slots=True)
class OpenVote:
    """The votes of a group that is not drawn to its end."""

    counts_K: tuple[int, ...]
    """n_j."""
    firm_K: tuple[int, ...]
    """How much of it no later answer can take away: n_j where the class has one key."""
    drawn: int
    """n."""
    remaining: int
    """r."""

    @classmethod
    def of(cls, classes: Classes, total: int) -> OpenVote:
        """The classes of the completions drawn so far, `total` of which there will be."""
        audit = classes.audit()
        keys_K = [Counter[str]() for _ in classes.keys_K]
        for votes, name in zip(keys_K, classes.keys_K, strict=True):
            for spelling in audit[name]:
                votes[spelling.key] += spelling.count
        drawn = len(classes.class_of_G)
        counts_K = tuple(votes.total() for votes in keys_K)
        return cls(counts_K, tuple(max(votes.values()) for votes in keys_K), drawn, total - drawn)

    @property
    def total(self) -> int:
        """N."""
        return self.drawn + self.remaining

    def without(self, j: int) -> tuple[OpenVote, int]:
        """All classes but one, and its count."""
        others = [k for k in range(len(self.counts_K)) if k != j]
        counts_K, firm_K = (tuple(values[k] for k in others) for values in (self.counts_K, self.firm_K))
        return OpenVote(counts_K, firm_K, self.drawn, self.remaining), self.counts_K[j]


def majority_is_decided(vote: OpenVote) -> bool:
    """n₁ > n₂ + r: no other class can come level, so that no rule for ties is asked either.

    Where a class could come level but not ahead (n₁ = n₂ + r) the smallest key might win, and the smallest key of a
    class can change with every answer that joins it: one more draw decides.
    """
    if vote.remaining == 0:
        return True
    return _leads_by(vote, more_than=0)


def selective_is_decided(vote: OpenVote, *, min_share: float, min_margin: float) -> bool:
    """The label stands, or the abstention does.

    label       n₁ ≥ τ_pos N  and  n₁ − (n₂ + r) > τ_marg N                 at worst all r go to the second
    abstention  for every class j, one not yet seen (n_j = 0) among them:
                n_j + r < τ_pos N  or  n_j + r − max_{k ≠ j} firm_k ≤ τ_marg N      at best all r go to j
    """
    if vote.remaining == 0:
        return True
    least, lead = min_share * vote.total - SLACK, min_margin * vote.total + SLACK
    is_labelled = max(vote.counts_K, default=0) >= least and _leads_by(vote, more_than=lead)
    return is_labelled or not any(
        count + vote.remaining >= least and count + vote.remaining - max(others.firm_K, default=0) > lead
        for others, count in (*(vote.without(j) for j in range(len(vote.counts_K))), (vote, 0))
    )


def _leads_by(vote: OpenVote, more_than: float) -> bool:
    """n₁ − (n₂ + r) > so many, and the first class cannot be split."""
    if not vote.counts_K:
        return False
    leader = vote.counts_K.index(max(vote.counts_K))
    others, first = vote.without(leader)
    second = max(others.counts_K, default=0)
    return vote.firm_K[leader] == first and first - (second + vote.remaining) > more_than
