"""Classes of answers and entropies → Tally: votes, counted → labels: which answer to trust, which to rule out.

Sums are exactly rounded (`math.fsum`), so that the order of the completions changes no bit of any result.

Thresholds on shares are compared as counts against τ·N with a slack of 1e-12, so that rounding never decides:
7 − 4 votes of 24 at τ_marg = 0.125 is a margin of exactly 3, hence not above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import fsum, nan
from typing import Any

from scrl.answers.classes import MISSING, Classes
from scrl.records import Tally


def count_votes(classes: Classes, entropies_G: Sequence[float] | None) -> Tally:
    """n_j, H̄_j = (1/n_j) Σ_{i: a_i = a_j} h_i and H̄ = (1/N) Σ_i h_i.                         (paper, eq. 7)"""
    members_K: list[list[int]] = [[] for _ in classes.keys_K]
    for i, j in enumerate(classes.class_of_G):
        if j != MISSING:
            members_K[j].append(i)
    return Tally(
        keys_K=classes.keys_K,
        counts_K=tuple(map(len, members_K)),
        class_of_G=classes.class_of_G,
        entropies_G=None if entropies_G is None else tuple(entropies_G),
        class_entropies_K=None if entropies_G is None else tuple(mean_at(entropies_G, at) for at in members_K),
        group_entropy=None if entropies_G is None else fsum(entropies_G) / len(entropies_G),
    )


def with_votes(tally: Tally, votes: Sequence[str | None]) -> Tally:
    """The same completions, with other votes than their own: n_j counts these, an answer without any has n_j = 0.

    `votes` are keys of answers, None for no answer. Entropies stay those of the completions.
    """
    keys_K = tuple(sorted({*tally.keys_K, *(key for key in votes if key is not None)}))
    place, counts = {key: j for j, key in enumerate(keys_K)}, Counter(votes)
    entropies_K = tally.class_entropies_K
    if entropies_K is not None:
        known = dict(zip(tally.keys_K, entropies_K, strict=True))
        entropies_K = tuple(known.get(key, nan) for key in keys_K)
    return replace(
        tally,
        keys_K=keys_K,
        counts_K=tuple(counts[key] for key in keys_K),
        class_of_G=tuple(MISSING if j == MISSING else place[tally.keys_K[j]] for j in tally.class_of_G),
        class_entropies_K=entropies_K,
        class_of_votes=tuple(MISSING if key is None else place[key] for key in votes),
    )


def mean_at(values_G: Sequence[float], members: Sequence[int]) -> float:
    """The mean of the values at these indices, exactly rounded."""
    return fsum([values_G[i] for i in members]) / len(members)


SLACK = 1e-12


def selective_positive(tally: Tally, *, min_share: float, min_margin: float) -> str | None:
    """y⁺ = a_{j*} if p_{j*} ≥ τ_pos and p_{j*} − p_(2) > τ_marg, else none.                     (paper, eq. 4)

    A tie has margin 0 and is never labelled.
    """
    if not tally.keys_K:
        return None
    first, second = sorted((*tally.counts_K, 0), reverse=True)[:2]
    is_sharp = is_selected(first, second, tally.size, min_share=min_share, min_margin=min_margin)
    return tally.keys_K[tally.counts_K.index(first)] if is_sharp else None


def is_selected(first: Any, second: Any, size: Any, *, min_share: Any, min_margin: Any) -> Any:
    """p₁ ≥ τ_pos and p₁ − p₂ > τ_marg, for the two largest counts of `size` votes; all may be numbers or arrays.

    With shares in place of counts, `size` is 1.
    """
    return (first >= min_share * size - SLACK) & (first - second > min_margin * size + SLACK)


def majority_positive(tally: Tally, *, first_seen_wins: bool) -> str | None:
    """y⁺ = a_{j*}, j* = argmax_j p_j, always: the vote of TTRL. Ties go to the smallest key, or to the first seen."""
    return largest(tally, tally.counts_K, first_seen_wins=first_seen_wins)


def largest(tally: Tally, votes_K: Sequence[float], *, first_seen_wins: bool) -> str | None:
    """The answer with the most votes, however they are weighed; None if none has any."""
    most = max(votes_K, default=0)
    if not most:
        return None
    tied = [j for j, votes in enumerate(votes_K) if votes == most]
    winner = min(tied, key=tally.votes.index) if first_seen_wins else tied[0]
    return tally.keys_K[winner]


def rare_answers(tally: Tally, *, max_share: float) -> frozenset[str]:
    """{a_j : p_j < τ_neg}: rarity alone, without the entropy gate."""
    limit = max_share * tally.size - SLACK
    return frozenset(key for key, count in zip(tally.keys_K, tally.counts_K, strict=True) if count < limit)


def uncertain_answers(tally: Tally) -> frozenset[str]:
    """{a_j : H̄_j ≥ H̄}: the entropy gate."""
    assert tally.class_entropies_K is not None
    assert tally.group_entropy is not None
    limit = tally.group_entropy - SLACK
    return frozenset(key for key, h in zip(tally.keys_K, tally.class_entropies_K, strict=True) if h >= limit)


def gated_negatives(tally: Tally, *, max_share: float) -> frozenset[str]:
    """𝒩⁻ = {a_j : p_j < τ_neg and H̄_j ≥ H̄}.                                                    (paper, eq. 8)"""
    return rare_answers(tally, max_share=max_share) & uncertain_answers(tally)
