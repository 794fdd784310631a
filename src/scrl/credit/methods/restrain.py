"""RESTRAIN (arXiv:2510.02172): every answer is a candidate label, weighed by how frequent it is.

    r_ij = [a_i = a_j]        A_ij = r_ij normalised over the completions trained on
    w_j  = g(f_j) / Σ_l g(f_l),   f_j = n_j / N,   g(f) = exp(−(f − k)² / 2σ²)        weight of a candidate
    u    = g(share of the start model's most frequent answer)                       weight of the question
    max_j n_j < κ:   r_ij = 0 and A_ij = −δ                                         nobody agrees: all are pushed down

    maximised:  u Σ_j w_j min(ρ A_ij, clip(ρ) A_ij) = P min(ρ, 1 + ε_high) + Q max(ρ, 1 − ε_low),
                P_i = u Σ_j w_j max(A_ij, 0),   Q_i = u Σ_j w_j min(A_ij, 0)

The two scalars are exact for any ratio r; their sum is the advantage where the ratio is 1. With the population's
standard deviation A_ij = √((1 − f_j)/f_j) for those who gave a_j and −√(f_j/(1 − f_j)) for the others, f_j among those
trained on; where all agree it is 0.

No code was published, and k, σ, κ and δ were not found: the defaults are guesses. With k = 1 the weight rises with the
share. An answer given once has the largest A_ij, so weights must fall fast: for shares 0.4, 0.25, 0.1, 0.1 and three of
0.05 the advantages P + Q are 0.84, −0.39, −0.67, −0.70 with σ = 0.25, but 0.10, −0.05, −0.10, −0.04 with 0.5, and with
1 the rarest are the only ones to gain much. The weight of a question multiplies the penalty too, which a narrow g would
switch off just where nobody agrees, so it has its own width (`question_sigma`); the descriptions of the paper have
one g for both. κ is a share of N here (`min_share`).

Not specified, and our choice: a missing answer is no candidate and supports none, but counts in N, and is pushed down
with the others; κ, f and w come from all N, A_ij from the completions trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum

import numpy as np
from pydantic import Field

from scrl.credit.advantages import reward_advantages
from scrl.credit.labels import SLACK, majority_positive
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, SplitAdvantage
from scrl.credit.rewards import spread
from scrl.records import Floats, Labels, Tally


class RestrainSettings(CreditSettings):
    """The numbers of RESTRAIN; none of them is known."""

    centre: float = Field(1.0, ge=0, le=1, description="k: the share that weighs most.")
    sigma: float = Field(0.25, gt=0, description="σ: how fast the weight of an answer falls with its distance from k.")
    weigh_questions: bool = Field(
        True, description="Weigh each question by how far the start model agreed with itself on it."
    )
    question_sigma: float = Field(0.5, gt=0, description="σ in the weight of a question.")
    min_share: float = Field(
        0.125,
        ge=0,
        le=1,
        description="κ/N: where no answer has this share, every completion is pushed down (0: never).",
    )
    penalty: float = Field(1.0, ge=0, description="δ: how hard.")


def gaussian_weights(shares_K: Sequence[float], *, centre: float, sigma: float) -> list[float]:
    """w_j = g(f_j) / Σ_l g(f_l); the largest exponent is taken out first, so that not all of them vanish."""
    if not shares_K:
        return []
    exponents_K = [-(((share - centre) / sigma) ** 2) / 2 for share in shares_K]
    values_K = [exp(exponent - max(exponents_K)) for exponent in exponents_K]
    return [value / fsum(values_K) for value in values_K]


def question_weight(evidence: Evidence, settings: RestrainSettings) -> float:
    """u = exp(−(share − k)² / 2σ²), share that of the start model's most frequent answer; 1 where it is turned off."""
    if not settings.weigh_questions:
        return 1.0
    assert evidence.reference_share is not None
    return exp(-(((evidence.reference_share - settings.centre) / settings.question_sigma) ** 2) / 2)


def is_penalised(tally: Tally, settings: RestrainSettings) -> bool:
    """max_j n_j < κ: no answer has enough support."""
    return max(tally.counts_K, default=0) < settings.min_share * tally.size - SLACK


def label(evidence: Evidence, settings: RestrainSettings) -> Labels:
    """The most frequent answer, none where nobody agrees: for the record alone, as all answers are candidates."""
    if is_penalised(evidence.tally, settings):
        return Labels()
    return Labels(majority_positive(evidence.tally, first_seen_wins=settings.first_seen_wins))


def reward(evidence: Evidence, labels: Labels, settings: RestrainSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """R_i = Σ_j w_j r_ij, the weight of its own answer, or −δ where nobody agrees: for the record alone."""
    tally = evidence.tally
    weights_K = _weights(tally, settings)
    if is_penalised(tally, settings):
        rewards_G = np.full(tally.num_completions, -settings.penalty)
    else:
        rewards_G = spread(tally, weights_K, missing=0.0)
    return Shaped(rewards_G)


def advantage(
    evidence: Evidence,
    labels: Labels,  # noqa: ARG001 - a method's signature
    shaped: Shaped,  # noqa: ARG001 - a method's signature
    rows: Sequence[int],
    settings: RestrainSettings,
) -> SplitAdvantage:
    """P_i = u Σ_j w_j max(A_ij, 0) and Q_i = u Σ_j w_j min(A_ij, 0), or 0 and −u δ where nobody agrees."""
    weight = question_weight(evidence, settings)
    if is_penalised(evidence.tally, settings):
        return SplitAdvantage(np.zeros(len(rows)), np.full(len(rows), -weight * settings.penalty))
    advantages_KM = candidate_advantages(evidence.tally, rows, settings)
    weights_K1 = weight * np.array(_weights(evidence.tally, settings)).reshape(-1, 1)
    return SplitAdvantage(
        (weights_K1 * np.maximum(advantages_KM, 0)).sum(axis=0), (weights_K1 * np.minimum(advantages_KM, 0)).sum(axis=0)
    )


def candidate_advantages(tally: Tally, rows: Sequence[int], settings: RestrainSettings) -> Floats:
    """A_ij: the advantages of the completions trained on, if answer j were the label."""
    class_of_M = np.array(tally.class_of_G)[list(rows)]
    columns = [reward_advantages((class_of_M == j).astype(float), settings) for j in range(len(tally.keys_K))]
    return np.array(columns).reshape(-1, len(rows))


def _weights(tally: Tally, settings: RestrainSettings) -> list[float]:
    return gaussian_weights(tally.shares_K, centre=settings.centre, sigma=settings.sigma)


RESTRAIN = Method(
    name="restrain",
    idea="every answer is a candidate label, weighed by its share; where nobody agrees, all are pushed down",
    equation="Â = u Σ_j w_j A_j,  A_j = normalised [a = a_j],  w = g(p) / Σ g;  −u δ where max p < κ",
    paper="arXiv:2510.02172",
    settings=RestrainSettings,
    needs=lambda settings: frozenset({"reference_share"} if settings.weigh_questions else ()),
    label=label,
    reward=reward,
    has_negatives=False,
    advantage=advantage,
)
