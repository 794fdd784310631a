"""Contrast: an answer earns its share of the votes here, less its share elsewhere.

    R_i = p(a_i) − β p̄(a_i)        p̄(a): mean share of a over the other questions, each at its last visit

A model that does not know says the same few words to many questions, so a wrong consensus shows across questions: p̄ is
large there, and small for an answer that belongs to this question. No threshold, no label. A missing answer earns
`missing_gap` less than the worst answer of its group. With β = 0 it is the share alone.
"""

from __future__ import annotations

from pydantic import Field

from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, needing, no_labels
from scrl.credit.rewards import spread
from scrl.records import Labels


class ContrastSettings(CreditSettings):
    """How much popularity elsewhere costs."""

    elsewhere_weight: float = Field(
        1.5, ge=0, description="β: how much an answer loses for its mean share over the other questions."
    )
    missing_gap: float = Field(
        0.125, ge=0, description="A missing answer earns this much less than the worst answer of its group."
    )


def reward(evidence: Evidence, labels: Labels, settings: ContrastSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """R_i = p(a_i) − β p̄(a_i)."""
    assert evidence.elsewhere is not None
    tally, elsewhere = evidence.tally, evidence.elsewhere.shares
    rewards_K = [
        share - settings.elsewhere_weight * elsewhere.get(key, 0.0)
        for key, share in zip(tally.keys_K, tally.shares_K, strict=True)
    ]
    rewards_G = spread(tally, rewards_K, missing=min(rewards_K, default=0.0) - settings.missing_gap)
    return Shaped(rewards_G)


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
