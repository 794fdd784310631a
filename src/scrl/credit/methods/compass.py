"""COMPASS (arXiv:2510.17923): votes weighed by confidence, and a reward for a decisive path.

    d_t  = π(likeliest) − π(second likeliest) at token t
    c_i  = exp(± std_t d_t)                                       confidence
    y⁺   = argmax_a Σ_{i: a_i = a} c_i
    κ    = max_{i: a_i = y⁺} c_i / max_i c_i                      credibility: 1 where the most confident supports y⁺
    R_i  = κ [a_i = y⁺] + λ Σ_t w_t d_t,   w_t = H_t / Σ H        answer and path

No code was published; the formulas are those of summaries and reviews of the paper. What is uncertain:

* the sign in the exponent: + as a reviewer writes it, − is the more intuitive reading (`exponent_sign`); either way
  the std of numbers in [0, 1] is at most 0.5, so the weights of two votes differ by 65 % at most;
* how the path reward is normalised: a mean weighted by entropy is our reading (the fact `decisiveness`), and its weight
  is 1 (`path_weight`);
* missing answers: here they do not vote and earn nothing, because a truncated completion that repeats itself is as
  decisive as can be. Whether the most confident of all may be one of them is not said: here it may.

κ scales the rewards of all supporters of y⁺ alike: with normalised advantages and no path reward it cancels.
"""

from __future__ import annotations

from math import exp, fsum

import numpy as np
from pydantic import Field

from scrl.answers.classes import MISSING
from scrl.credit.labels import largest
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped
from scrl.credit.rewards import match_rewards
from scrl.records import Labels


class CompassSettings(CreditSettings):
    """What the descriptions of COMPASS leave open."""

    exponent_sign: int = Field(
        1,
        ge=-1,
        le=1,
        description="The sign in c = exp(± std of d): 1 trusts a changing margin, -1 a steady one; 0: all votes equal.",
    )
    path_weight: float = Field(1.0, ge=0, description="λ: weight of the path reward.")


def confidences(evidence: Evidence, settings: CompassSettings) -> list[float]:
    """c_i / max c, c_i = exp(± std over tokens of π(likeliest) − π(second)): neither y⁺ nor κ depends on the scale."""
    exponents_G = (settings.exponent_sign * evidence.fact("margin_std")).tolist()
    largest_exponent = max(exponents_G)
    return [exp(exponent - largest_exponent) for exponent in exponents_G]


def label(evidence: Evidence, settings: CompassSettings) -> Labels:
    """The answer with the largest sum of confidence; ties as everywhere."""
    tally = evidence.tally
    pairs = list(zip(tally.class_of_G, confidences(evidence, settings), strict=True))
    votes_K = [fsum(confidence for own, confidence in pairs if own == j) for j in range(len(tally.keys_K))]
    return Labels(largest(tally, votes_K, first_seen_wins=settings.first_seen_wins))


def reward(evidence: Evidence, labels: Labels, settings: CompassSettings) -> Shaped:
    """κ for the label's answer (0 where there is no label), and λ Σ_t w_t d_t for the path."""
    supports_G = match_rewards(evidence.tally, labels)
    credibility = float(np.max(supports_G * confidences(evidence, settings)))
    answer_G = credibility * supports_G
    if not settings.path_weight:
        return Shaped(answer_G)
    has_answer_G = np.array(evidence.tally.class_of_G) != MISSING
    path_G = np.where(has_answer_G, settings.path_weight * evidence.fact("decisiveness"), 0.0)
    return Shaped(answer_G + path_G, answer_G)


COMPASS = Method(
    name="compass",
    idea="votes weighed by confidence, and a reward for being decisive where it is uncertain",
    equation="R = κ·[a = argmax Σ c] + λ Σ w d,  c = exp(± std d),  κ = max c of supporters / max c",
    paper="arXiv:2510.17923",
    settings=CompassSettings,
    needs=lambda settings: frozenset({"margin_std"} | ({"decisiveness"} if settings.path_weight else set())),
    label=label,
    reward=reward,
    has_negatives=False,
    weighs_votes=True,
)
