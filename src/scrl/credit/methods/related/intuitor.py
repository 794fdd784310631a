"""Intuitor (Zhao et al. 2025, arXiv:2505.19590): self-certainty, how far the next token is from a uniform guess.

R_i = mean_t [logsumexp(z_t) − mean_v z_tv]        z = logits / T

This is mean_t KL(uniform ‖ π_t) + log V, from the authors' code; the constant log V drops out of every advantage. No
answer is compared with another, so there are no labels, and a missing answer earns what its tokens earn.
"""

from __future__ import annotations

from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, needing, no_labels
from scrl.records import Labels


def reward(evidence: Evidence, labels: Labels, settings: CreditSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """R_i = the completion's certainty, as the sampler recorded it."""
    return Shaped(evidence.fact("certainty"))


INTUITOR = Method(
    name="intuitor",
    idea="reward self-certainty: how far the policy is from a uniform guess, token by token",
    equation="R = mean_t KL(uniform ‖ π_t) + log V",
    paper="arXiv:2505.19590",
    settings=CreditSettings,
    label=no_labels,
    reward=reward,
    needs=needing("certainty"),
    has_negatives=False,
)
