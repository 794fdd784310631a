"""SPINE (Wu et al. 2025, arXiv:2511.17938): the majority's reward, trained only on the tokens where the text forks.

    R_i = [a_i = y⁺]        y⁺ the majority of all, or of the others (`leave_one_out`); a missing answer earns 0
    w_t = 1 for the ⌊0.2 T⌋ tokens of highest entropy of a completion (at least one), else 0

Known from summaries, not from code. Well attested: the reward, the 20 %, that neither the gradient nor the KL reaches
other tokens, and that the label can be left-one-out. Our reading: 20 % is rounded down, of equal entropies the first is
taken, and a completion is as long as its chosen tokens are many where the loss divides by its length. With
`leave_one_out` a completion is compared with the majority of the others, and an answer that nobody else gave earns 0;
the label on record is still that of all.

Left out: the band that holds the entropy of the chosen tokens between two of its quantiles, max(0, H − q₅₀) +
max(0, q₁₀ − H). It is a term of the loss and not a weight of tokens, and its weight was not found. A later
version of the paper chooses tokens by their distribution instead; how was not found either.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from scrl.answers.classes import MISSING
from scrl.credit.labels import SLACK, majority_positive
from scrl.credit.method import CreditSettings, Evidence, Shaped
from scrl.credit.methods.ttrl import TTRL
from scrl.records import Floats, Labels, Tally


class SpineSettings(CreditSettings):
    """Which tokens are trained on, and whose majority counts."""

    token_share: float = Field(0.2, gt=0, le=1, description="The share of a completion's tokens that is trained on.")
    leave_one_out: bool = Field(False, description="Compare a completion with the majority of the others.")


def reward(evidence: Evidence, labels: Labels, settings: SpineSettings) -> Shaped:
    """1 for the majority's answer, else 0."""
    if not settings.leave_one_out or evidence.tally.class_of_votes is not None:  # then its own vote is not among them
        return TTRL.reward(evidence, labels, settings)
    agrees_G = [
        agrees_with_others(evidence.tally, i, settings.first_seen_wins) for i in range(evidence.tally.num_completions)
    ]
    return Shaped(np.array(agrees_G, dtype=float))


def agrees_with_others(tally: Tally, i: int, first_seen_wins: bool) -> bool:
    """[a_i = majority of the others]; False for a missing answer and where nobody else gave one."""
    own = tally.class_of_G[i]
    if own == MISSING or tally.counts_K[own] == 1:
        return False
    others = replace(
        tally,
        counts_K=tuple(count - (j == own) for j, count in enumerate(tally.counts_K)),
        class_of_G=tally.class_of_G[:i] + tally.class_of_G[i + 1 :],
    )
    return majority_positive(others, first_seen_wins=first_seen_wins) == tally.keys_K[own]


def weigh_tokens(entropies_T: Floats, settings: SpineSettings) -> Floats:
    """1 for the tokens of highest entropy, 0 for the others."""
    number = max(1, int(settings.token_share * len(entropies_T) + SLACK))
    weights_T = np.zeros(len(entropies_T))
    weights_T[np.argsort(-entropies_T, kind="stable")[:number]] = 1
    return weights_T


SPINE = replace(
    TTRL,
    name="spine",
    idea="the reward of TTRL, trained only on the fifth of the tokens with the highest entropy",
    equation="R = [a = argmax p], w_t = [H_t among the top 20 %]",
    paper="arXiv:2511.17938",
    settings=SpineSettings,
    reward=reward,
    weigh_tokens=weigh_tokens,
)
