"""Rewards of a group → advantages."""

from __future__ import annotations

from math import fsum, sqrt

import numpy as np

from scrl.credit.labels import SLACK
from scrl.credit.method import CreditSettings, SplitAdvantage
from scrl.records import Floats


def reward_advantages(rewards_M: Floats, settings: CreditSettings) -> Floats:
    """Â of the completions trained on, by the setting `advantage`; above 0, times w."""
    if settings.advantage == "centred":
        advantages_M = centred_advantages(rewards_M)
    elif settings.advantage == "leave-one-out":
        advantages_M = leave_one_out_advantages(rewards_M)
    else:
        sample_std = settings.std == "sample"
        advantages_M = group_advantages(
            rewards_M, sample_std=sample_std, eps=settings.eps, std_floor=settings.std_floor
        )
    return np.where(advantages_M > 0, settings.positive_weight * advantages_M, advantages_M)


def is_constant(values_M: Floats) -> bool:
    """Equal up to rounding: the mean of equal entropies may miss them by a last digit."""
    values: list[float] = values_M.tolist()
    return max(values) - min(values) <= SLACK


def split_by_sign(advantages_M: Floats) -> SplitAdvantage:
    """P = max(Â, 0), Q = min(Â, 0)."""
    return SplitAdvantage(np.maximum(advantages_M, 0), np.minimum(advantages_M, 0))


def group_advantages(rewards_M: Floats, *, sample_std: bool, eps: float, std_floor: float) -> Floats:
    """Â_i = (R_i − μ) / (max(σ, s₀) + ε).                                                        (paper, eq. 1)

    σ is the population standard deviation, or the sample one (n − 1); s₀ is `std_floor`. A group of one, and a group of
    equal rewards, has advantage 0. For rewards 1 and 0 with a share f of ones, Â⁺ = √((1 − f)/f)    (paper, eq. 3).
    """
    rewards: list[float] = rewards_M.tolist()
    size = len(rewards)
    if size < 2 or is_constant(rewards_M):
        return np.zeros(size)
    mean = fsum(rewards) / size
    variance = fsum((reward - mean) ** 2 for reward in rewards) / (size - 1 if sample_std else size)
    return np.asarray((rewards_M - mean) / (max(sqrt(variance), std_floor) + eps), dtype=np.float64)


def centred_advantages(rewards_M: Floats) -> Floats:
    """Â_i = R_i − μ: what Dr. GRPO takes, so that an easy or a hard question weighs no more than others."""
    rewards: list[float] = rewards_M.tolist()
    if is_constant(rewards_M):
        return np.zeros(len(rewards))
    return np.asarray(rewards_M - fsum(rewards) / len(rewards), dtype=np.float64)


def leave_one_out_advantages(rewards_M: Floats) -> Floats:
    """Â_i = R_i − mean of the others = (R_i − μ) · n / (n − 1): what RLOO takes. A group of one has advantage 0."""
    size = len(rewards_M)
    return centred_advantages(rewards_M) * (size / (size - 1)) if size > 1 else np.zeros(size)
