"""Contrast: an answer earns its share of the votes here, less its share elsewhere.

    R_i = p(a_i) − β p̄(a_i)        p̄(a): mean share of a over the other questions, each at its last visit

A model that does not know says the same few words to many questions, so a wrong consensus shows across questions: p̄ is
large there, and small for an answer that belongs to this question. No threshold, no label. A missing answer earns
`missing_gap` less than the worst answer of its group. With β = 0 it is the share alone.

`contrast-label` asks for the same distance as a label needs:

    y⁺ = argmax_a p(a) − β p̄(a)  if that is at least τ, else none        R_i = [a_i = y⁺]
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from scrl.credit.labels import SLACK
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, needing, no_labels
from scrl.credit.methods.ttrl import TTRL
from scrl.credit.rewards import spread
from scrl.records import Labels


class ElsewhereSettings(CreditSettings):
    """How much popularity elsewhere costs."""

    elsewhere_weight: float = Field(
        1.5, ge=0, description="β: how much an answer loses for its mean share over the other questions."
    )


class ContrastSettings(ElsewhereSettings):
    """What a missing answer earns."""

    missing_gap: float = Field(
        0.125, ge=0, description="A missing answer earns this much less than the worst answer of its group."
    )


class ContrastLabelSettings(ElsewhereSettings):
    """How far an answer must stand out to become a label."""

    min_contrast: float = Field(0.4, gt=0, le=1, description="τ: a label needs p − β p̄ of at least this.")


def contrasts(evidence: Evidence, settings: ElsewhereSettings) -> list[float]:
    """p(a) − β p̄(a) of every class."""
    assert evidence.elsewhere is not None
    tally, elsewhere = evidence.tally, evidence.elsewhere.shares
    return [
        share - settings.elsewhere_weight * elsewhere.get(key, 0.0)
        for key, share in zip(tally.keys_K, tally.shares_K, strict=True)
    ]


def reward(evidence: Evidence, labels: Labels, settings: ContrastSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """R_i = p(a_i) − β p̄(a_i)."""
    rewards_K = contrasts(evidence, settings)
    return Shaped(spread(evidence.tally, rewards_K, missing=min(rewards_K, default=0.0) - settings.missing_gap))


def label(evidence: Evidence, settings: ContrastLabelSettings) -> Labels:
    """The answer with the largest p − β p̄, if that is large enough; a tie goes to the smallest key."""
    contrasts_K = contrasts(evidence, settings)
    best = max(contrasts_K, default=-1.0)
    return Labels(evidence.tally.keys_K[contrasts_K.index(best)] if best >= settings.min_contrast - SLACK else None)


CONTRAST = Method(
    name="contrast",
    idea="an answer earns its share of the votes, less its mean share over the other questions",
    equation="R = p(a) − β p̄(a)",
    paper="ours",
    settings=ContrastSettings,
    needs=needing("elsewhere"),
    label=no_labels,
    reward=reward,
    has_negatives=False,
)
CONTRAST_LABEL = replace(
    TTRL,
    name="contrast-label",
    idea="reward 1 for the answer whose share stands out from its share elsewhere, if it does so clearly",
    equation="R = [a = argmax p − β p̄],  silent where p − β p̄ < τ",
    paper="ours",
    settings=ContrastLabelSettings,
    needs=needing("elsewhere"),
    label=label,
    run={
        "completions": 16,
        "label_votes": "round",
        "sampling": {"temperature": 0.6},
        "optimizer": {"learning_rate": 1e-6},
    },
)
