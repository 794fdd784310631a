"""DARE (2026, arXiv:2601.21804): the whole distribution of answers, votes divided by how unsure the voters were.

    p̂(a) ∝ n(a) / (u(a) + ε)        u(a): mean over the completions that say a of their mean token entropy, H̄_a
    p̃(a) = p̂(a) where p̂(a) ≥ τ, else 0, scaled to sum 1
    R_i = p̃(a_i) + α (1 − n(a_i)/N) (1 − u(a_i))

Known from summaries, not from code. Not found: α (`bonus_weight`), τ (`min_probability`) and ε (`entropy_eps`); the
defaults are guesses of ours. Not said: whether an answer that was dropped keeps its bonus (`bonus_for_dropped`; the
equation as printed says yes), and what a missing answer earns (0 here; it counts in N). As printed, the bonus is
negative for u > 1. Where τ drops every answer, p̃ is 0 for all and there is no label; otherwise the label is the
likeliest answer, for measuring alone: the reward does not look at it. Ties are a setting here (`ties`).
"""

from __future__ import annotations

from math import fsum

from pydantic import Field

from scrl.credit.labels import SLACK, largest
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, needing
from scrl.credit.rewards import spread
from scrl.records import Labels, Tally


class DareSettings(CreditSettings):
    """DARE's three constants, none of which was found: all are guesses."""

    bonus_weight: float = Field(0.1, ge=0, description="α: weight of the bonus for rare and certain answers (a guess).")
    min_probability: float = Field(0.05, ge=0, le=1, description="τ: answers with p̂ below this are dropped (a guess).")
    entropy_eps: float = Field(1e-6, gt=0, description="ε: added to the entropy that divides the votes (a guess).")
    bonus_for_dropped: bool = Field(True, description="Whether answers that were dropped keep their bonus.")


def probabilities(tally: Tally, settings: DareSettings) -> list[float]:
    """p̃ of each class."""
    assert tally.class_entropies_K is not None
    weights_K = [n / (u + settings.entropy_eps) for n, u in zip(tally.counts_K, tally.class_entropies_K, strict=True)]
    limit = settings.min_probability * fsum(weights_K) * (1 - SLACK)
    kept_K = [weight if weight >= limit else 0.0 for weight in weights_K]
    total = fsum(kept_K)
    return [weight / total if total else 0.0 for weight in kept_K]


def label(evidence: Evidence, settings: DareSettings) -> Labels:
    """The likeliest answer, if one was kept."""
    probabilities_K = probabilities(evidence.tally, settings)
    if not any(probabilities_K):
        return Labels()
    return Labels(largest(evidence.tally, probabilities_K, first_seen_wins=settings.first_seen_wins))


def reward(evidence: Evidence, labels: Labels, settings: DareSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """R_i = p̃ + α (1 − n/N) (1 − u)."""
    tally = evidence.tally
    assert tally.class_entropies_K is not None
    probabilities_K = probabilities(tally, settings)
    bonus_K = [
        settings.bonus_weight * (1 - share) * (1 - u) if probability or settings.bonus_for_dropped else 0.0
        for probability, share, u in zip(probabilities_K, tally.shares_K, tally.class_entropies_K, strict=True)
    ]
    values_K = [probability + bonus for probability, bonus in zip(probabilities_K, bonus_K, strict=True)]
    return Shaped(spread(tally, values_K, missing=0.0))


DARE = Method(
    name="dare",
    idea="every answer earns its votes over its entropy, and a bonus where it is rare and certain",
    equation="R = p̃ + α (1 − p)(1 − H̄_a), p̃ ∝ n / (H̄_a + ε)",
    paper="arXiv:2601.21804",
    settings=DareSettings,
    label=label,
    reward=reward,
    needs=needing("entropy"),
    has_negatives=False,
    weighs_votes=True,
)
