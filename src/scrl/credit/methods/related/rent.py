"""RENT (Prabhudesai et al. 2025, arXiv:2505.22660): be sure of what you write, whatever it says.

R_i = −h_i        h_i: mean over the completion's tokens of the entropy, in nats

No answer is compared with another, so there are no labels. The reward is that of the authors' code. What a completion
without an answer earns depends there on an option `format`: off, −h_i as every other; on, the constant −7.0. Which of
the two the paper's numbers were made with we do not know; the default here is the printed equation, −h_i, and
`entropy_base: -7.0` is the other. With normalised advantages −7 is far below any −h_i, so that one missing answer in a
group all but hides the differences between the others.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from scrl.answers.classes import MISSING
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, needing, no_labels
from scrl.records import Labels


class RentSettings(CreditSettings):
    """What a missing answer earns."""

    entropy_base: float | None = Field(
        None, description="What a missing answer earns; none: −h, as others. The authors' option `format`: -7.0."
    )


def reward(evidence: Evidence, labels: Labels, settings: RentSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """R_i = −h_i, or `entropy_base` for a missing answer."""
    assert evidence.tally.entropies_G is not None
    rewards_G = -np.array(evidence.tally.entropies_G)
    if settings.entropy_base is not None:
        rewards_G[np.array(evidence.tally.class_of_G) == MISSING] = settings.entropy_base
    return Shaped(rewards_G)


RENT = Method(
    name="rent",
    idea="reward certainty: minus the mean entropy of a completion's tokens; answers play no part",
    equation="R = −h",
    paper="arXiv:2505.22660",
    settings=RentSettings,
    label=no_labels,
    reward=reward,
    needs=needing("entropy"),
    has_negatives=False,
)
