"""Tally and labels → a reward for each completion.

All functions compute one value per class and give it to the completions of that class, so equal answers earn equal
rewards. A missing answer earns `missing`, a separate number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scrl.answers.classes import MISSING
from scrl.credit.labels import mean_at
from scrl.errors import InputError
from scrl.records import Floats, Labels, Tally


def match_rewards(tally: Tally, labels: Labels) -> Floats:
    """R_i = [a_i = y⁺]; a missing answer earns 0: the reward of TTRL."""
    return spread(tally, [float(key == labels.positive) for key in tally.keys_K], missing=0.0)


def hard_rewards(tally: Tally, labels: Labels, *, missing: float) -> Floats:
    """R_i = [a_i = y⁺] − [a_i ∈ 𝒩⁻]: +1, 0 or −1."""
    values_K = [float(key == labels.positive) - float(key in labels.negatives) for key in tally.keys_K]
    return spread(tally, values_K, missing)


def consensus_rewards(tally: Tally, labels: Labels, *, max_negative_share: float, missing: float) -> Floats:
    """R_i = p(a_i)·[a_i = y⁺] + (p(a_i) − τ_neg)·[a_i ∈ 𝒩⁻]: the label terms of eq. 9."""
    values_K = [
        share * (key == labels.positive) + (share - max_negative_share) * (key in labels.negatives)
        for key, share in zip(tally.keys_K, tally.shares_K, strict=True)
    ]
    return spread(tally, values_K, missing)


def entropy_rewards(tally: Tally, *, weight: float, also_missing: bool) -> Floats:
    """R_i = −λ_H (H̄(a_i) − H̄): the entropy term of eq. 9.

    A missing answer has no such term, unless `also_missing`: then the missing answers count as one class.
    """
    assert tally.class_entropies_K is not None
    assert tally.group_entropy is not None
    missing = 0.0
    absent = [i for i, j in enumerate(tally.class_of_G) if j == MISSING]
    if also_missing and absent:
        assert tally.entropies_G is not None
        missing = -weight * (mean_at(tally.entropies_G, absent) - tally.group_entropy)
    return spread(tally, [-weight * (h - tally.group_entropy) for h in tally.class_entropies_K], missing)


def spread(tally: Tally, values_K: Sequence[float], missing: float) -> Floats:
    """One value per class → one per completion."""
    if len(values_K) != len(tally.keys_K):
        raise InputError(f"spread: needs one value per class of answers: {len(tally.keys_K)}, not {len(values_K)}")
    return np.array([missing if j == MISSING else values_K[j] for j in tally.class_of_G], dtype=np.float64)
