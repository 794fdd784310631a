"""Tally → labels: which answer to trust, which to rule out.

Thresholds on shares are compared as counts against τ·N with a slack of 1e-12, so that rounding never decides:
7 − 4 votes of 24 at τ_marg = 0.125 is a margin of exactly 3, hence not above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scrl.records import Tally

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
