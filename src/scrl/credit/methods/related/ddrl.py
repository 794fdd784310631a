"""DDRL (Yu et al. 2026, arXiv:2604.21327): the majority's reward, a balanced choice of what is trained on, no σ.

    y⁺ = argmax_j p_j        R_i = [a_i = y⁺]                                          as in TTRL
    K⁺ = min(n_top, ⌊M/2⌋) completions of the most frequent answer,
    K⁻ = M − K⁺ of the rarest answers, missing ones first (they count as 0 votes)      balanced sampling (BCS)
    Â_i = +1 for R_i = 1, −1 for R_i = 0                                               debiased advantage (DAE)

All of it from the authors' code. What is between the two ends is not trained on; where there are too few other
answers, completions of the majority fill the lower end too. Among completions with equal votes `which_trained` decides:
a random one, or the first. The K⁺ come from the label's class alone, also where another has as many votes (there, the
order of sorting decides). Since Â = ±1 is not centred, a unanimous group is pushed up and a group without any answer
down. Written as Â = 2R − 1, which also carries rewards that overlong shaping made smaller. The third part of the paper,
supervised training on completions of high consensus afterwards, is not a reward and is not in the authors' repository;
it is left out here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from scrl.answers.classes import MISSING
from scrl.credit.advantages import reward_advantages, split_by_sign
from scrl.credit.method import CreditSettings, Evidence, Shaped, SplitAdvantage, rows_by_setting
from scrl.credit.methods.ttrl import TTRL
from scrl.records import Labels


class DdrlSettings(CreditSettings):
    """The two parts of DDRL."""

    balanced: bool = Field(True, description="BCS: train on both ends of the votes; false: as `which_trained` says.")
    signed: bool = Field(True, description="DAE: advantages +1 and −1; false: as `advantage` says.")


def choose(evidence: Evidence, labels: Labels, num_trained: int, settings: DdrlSettings) -> tuple[int, ...]:
    """K⁺ of the majority, K⁻ of the rarest."""
    if not settings.balanced:
        return rows_by_setting(evidence, num_trained, settings)
    tally = evidence.tally
    votes_G = [0 if j == MISSING else tally.counts_K[j] for j in tally.class_of_G]
    is_label_G = [j != MISSING and tally.keys_K[j] == labels.positive for j in tally.class_of_G]
    is_first = settings.which_trained == "first"
    order = (
        range(tally.num_completions) if is_first else evidence.generator().permutation(tally.num_completions).tolist()
    )
    majority = [i for i in order if is_label_G[i]][: num_trained // 2]
    others = [i for i in order if i not in majority]
    rarest = sorted(others, key=lambda i: (is_label_G[i], votes_G[i]))[: num_trained - len(majority)]
    return tuple(sorted(majority + rarest))


def advantage(
    evidence: Evidence,  # noqa: ARG001 - a method's signature
    labels: Labels,  # noqa: ARG001
    shaped: Shaped,
    rows: Sequence[int],
    settings: DdrlSettings,
) -> SplitAdvantage:
    """Â = 2R − 1: +1 for the majority's answer, −1 for the others."""
    rewards_M = shaped.rewards_G[list(rows)]
    return split_by_sign(2 * rewards_M - 1 if settings.signed else reward_advantages(rewards_M, settings))


DDRL = replace(
    TTRL,
    name="ddrl",
    idea="the majority's answer against the rarest ones, half and half, with advantages +1 and −1",
    equation="Â = +1 if a = argmax p, else −1",
    paper="arXiv:2604.21327",
    settings=DdrlSettings,
    choose=choose,
    advantage=advantage,
)
