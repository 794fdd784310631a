"""Control arms: how much of a gain is due to the labels?

oracle      R_i = [a_i = gold]       the upper bound: gold answers, handed in by `evaluation/`
random      R_i ~ Bernoulli(1/2)     no information at all
inverted    R_i = −[a_i = y⁺]        TTRL's reward negated: the majority is pushed down

A model that gains as much from `random` as from a method's labels did not learn it from the labels (Shao et al. 2025,
"Spurious rewards", arXiv:2506.10947).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scrl.credit.labels import majority_positive
from scrl.credit.method import CreditSettings, Evidence, Shaped, needing, no_labels
from scrl.credit.methods.ttrl import TTRL
from scrl.credit.rewards import hard_rewards
from scrl.records import Labels


def label_by_gold(evidence: Evidence, settings: CreditSettings) -> Labels:  # noqa: ARG001 - a method's signature
    """The right answer, if some completion gave it."""
    assert evidence.truth is not None
    return Labels(evidence.truth.key)


def reward_at_random(evidence: Evidence, labels: Labels, settings: CreditSettings) -> Shaped:  # noqa: ARG001
    """A coin toss per completion: 1 or 0, whatever it says."""
    return Shaped(evidence.generator().integers(2, size=evidence.tally.num_completions).astype(np.float64))


def label_majority_wrong(evidence: Evidence, settings: CreditSettings) -> Labels:
    """The majority is ruled out."""
    majority = majority_positive(evidence.tally, first_seen_wins=settings.first_seen_wins)
    return Labels(negatives=frozenset() if majority is None else frozenset({majority}))


def reward_minus_match(evidence: Evidence, labels: Labels, settings: CreditSettings) -> Shaped:  # noqa: ARG001
    """−1 for the majority's answer, else 0; a missing answer earns 0, as in TTRL."""
    return Shaped(hard_rewards(evidence.tally, labels, missing=0.0))


ORACLE = replace(
    TTRL,
    name="oracle",
    idea="control: reward 1 for the gold answer, the upper bound; needs gold",
    equation="R = [a = gold]",
    paper="arXiv:2506.10947",
    label=label_by_gold,
    needs=needing("truth"),
)
RANDOM = replace(
    TTRL,
    name="random",
    idea="control: reward 1 or 0 by a coin, whatever the completion says",
    equation="R ~ Bernoulli(1/2)",
    paper="arXiv:2506.10947",
    label=no_labels,
    reward=reward_at_random,
    is_silent_without_label=False,
)
INVERTED = replace(
    TTRL,
    name="inverted",
    idea="control: reward −1 for the most frequent answer, 0 for all others",
    equation="R = −[a = argmax p]",
    paper="arXiv:2506.10947",
    label=label_majority_wrong,
    reward=reward_minus_match,
    has_negatives=True,
    is_silent_without_label=False,
)
CONTROLS = (ORACLE, RANDOM, INVERTED)
