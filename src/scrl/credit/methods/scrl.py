"""SCRL (arXiv:2603.19880): trust only a sharp consensus, rule out the rare and uncertain, shape the rewards.

    y⁺  = a_{j*}  if p_{j*} ≥ τ_pos and p_{j*} − p_(2) > τ_marg, else none                                     (eq. 4)
    𝒩⁻ = {a_j : p_j < τ_neg and H̄_j ≥ H̄}                                                                      (eq. 8)
    R_i = p(a_i)·[a_i = y⁺] + (p(a_i) − τ_neg)·[a_i ∈ 𝒩⁻] − λ_H (H̄(a_i) − H̄)                                  (eq. 9)

and the four ablations of the paper's table, each without one of its parts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from scrl.credit.labels import gated_negatives, majority_positive, rare_answers, selective_positive
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, needing
from scrl.credit.rewards import consensus_rewards, entropy_rewards, hard_rewards
from scrl.records import Labels, Tally


class ScrlSettings(CreditSettings):
    """The thresholds of SCRL, with the paper's values."""

    min_share: float = Field(0.375, ge=0, le=1, description="τ_pos: the winning answer needs at least this share of N.")
    min_margin: float = Field(
        0.125, ge=0, le=1, description="τ_marg: the winner must lead the runner-up by more than this share of N."
    )
    max_negative_share: float = Field(
        0.125, ge=0, le=1, description="τ_neg: only answers with a share below this can be negative."
    )
    entropy_weight: float = Field(0.1, ge=0, description="λ_H: weight of the entropy term.")
    missing_reward: Literal["negative", "entropy", "zero"] | float = Field(
        "negative",
        description="What a missing answer earns: 'negative' (as a negative label of share 0: −τ_neg, hard −1), "
        "'entropy' (only the entropy term), 'zero', or a number.",
    )


def label(evidence: Evidence, settings: ScrlSettings) -> Labels:
    """Selective positive, entropy-gated negatives."""
    negatives = gated_negatives(evidence.tally, max_share=settings.max_negative_share)
    return _without_overlap(_selective(evidence.tally, settings), negatives)


def label_without_selective(evidence: Evidence, settings: ScrlSettings) -> Labels:
    """Majority positive as in TTRL, entropy-gated negatives."""
    majority = majority_positive(evidence.tally, first_seen_wins=settings.first_seen_wins)
    return _without_overlap(majority, gated_negatives(evidence.tally, max_share=settings.max_negative_share))


def label_without_negative(evidence: Evidence, settings: ScrlSettings) -> Labels:
    """Selective positive, no negatives."""
    return Labels(_selective(evidence.tally, settings))


def label_without_gate(evidence: Evidence, settings: ScrlSettings) -> Labels:
    """Selective positive, every rare answer negative."""
    negatives = rare_answers(evidence.tally, max_share=settings.max_negative_share)
    return _without_overlap(_selective(evidence.tally, settings), negatives)


def _selective(tally: Tally, settings: ScrlSettings) -> str | None:
    return selective_positive(tally, min_share=settings.min_share, min_margin=settings.min_margin)


def _without_overlap(positive: str | None, negatives: frozenset[str]) -> Labels:
    """The positive class is never negative."""
    return Labels(positive, negatives - {positive})


def shaped_reward(evidence: Evidence, labels: Labels, settings: ScrlSettings) -> Shaped:
    """Eq. 9: rewards that scale with the consensus, minus the entropy term."""
    label_part_G = consensus_rewards(
        evidence.tally,
        labels,
        max_negative_share=settings.max_negative_share,
        missing=_missing(settings, negative=-settings.max_negative_share),
    )
    if not settings.entropy_weight:
        return Shaped(label_part_G)
    entropy_part_G = entropy_rewards(
        evidence.tally, weight=settings.entropy_weight, also_missing=settings.missing_reward == "entropy"
    )
    return Shaped(label_part_G + entropy_part_G, label_part_G)


def hard_reward(evidence: Evidence, labels: Labels, settings: ScrlSettings) -> Shaped:
    """Without dynamic reward: +1, 0, −1, no entropy term."""
    return Shaped(hard_rewards(evidence.tally, labels, missing=_missing(settings, negative=-1.0)))


def _missing(settings: ScrlSettings, *, negative: float) -> float:
    choice = settings.missing_reward
    if isinstance(choice, str):
        return negative if choice == "negative" else 0.0
    return choice


SCRL = Method(
    name="scrl",
    idea="label only a sharp consensus, rule out rare and uncertain answers, shape the rewards",
    equation="R = p·[a = y⁺] + (p − τ_neg)·[a ∈ 𝒩⁻] − λ_H (H̄_a − H̄)",
    paper="arXiv:2603.19880",
    settings=ScrlSettings,
    needs=needing("entropy"),
    label=label,
    reward=shaped_reward,
)
WITHOUT_SELECTIVE = replace(
    SCRL,
    name="scrl-without-selective",
    idea="ablation: SCRL with the plain majority as positive label",
    label=label_without_selective,
)
WITHOUT_NEGATIVE = replace(
    SCRL,
    name="scrl-without-negative",
    idea="ablation: SCRL without negative labels",
    needs=lambda settings: frozenset({"entropy"} if settings.entropy_weight > 0 else ()),
    label=label_without_negative,
    has_negatives=False,
)
WITHOUT_GATE = replace(
    SCRL,
    name="scrl-without-gate",
    idea="ablation: SCRL with every rare answer negative, whatever its entropy",
    needs=lambda settings: frozenset({"entropy"} if settings.entropy_weight > 0 else ()),
    label=label_without_gate,
)
WITHOUT_SHAPING = replace(
    SCRL,
    name="scrl-without-shaping",
    idea="ablation: SCRL with rewards +1, 0, −1",
    equation="R = [a = y⁺] − [a ∈ 𝒩⁻]",
    reward=hard_reward,
)
