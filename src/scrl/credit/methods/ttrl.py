"""TTRL (Zuo et al. 2025, arXiv:2504.16084): the most frequent answer is the label, whatever its share.

y⁺ = argmax_j p_j        R_i = [a_i = y⁺]
"""

from __future__ import annotations

from scrl.credit.labels import majority_positive
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped
from scrl.credit.rewards import match_rewards
from scrl.records import Labels


def label(evidence: Evidence, settings: CreditSettings) -> Labels:
    """The majority, always; no negatives."""
    return Labels(majority_positive(evidence.tally, first_seen_wins=settings.first_seen_wins))


def reward(evidence: Evidence, labels: Labels, settings: CreditSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """1 for the label's answer, else 0; a missing answer earns 0."""
    return Shaped(match_rewards(evidence.tally, labels))


TTRL = Method(
    name="ttrl",
    idea="reward 1 for the most frequent answer, 0 for all others",
    equation="R = [a = argmax p]",
    paper="arXiv:2504.16084",
    settings=CreditSettings,
    label=label,
    reward=reward,
    has_negatives=False,
    is_silent_without_label=True,
)
