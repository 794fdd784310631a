"""Rewards of a group → advantages."""

from __future__ import annotations

from math import fsum, sqrt

import numpy as np

from scrl.records import Floats


def group_advantages(
    rewards_G: Floats, *, sample_std: bool = False, eps: float = 1e-6, std_floor: float = 0.0
) -> Floats:
    """Â_i = (R_i − μ) / (max(σ, s₀) + ε).                                                        (paper, eq. 1)

    σ is the population standard deviation, or the sample one (n − 1); s₀ is `std_floor`. A group of one, and a group of
    equal rewards, has advantage 0. For rewards 1 and 0 with a share f of ones, Â⁺ = √((1 − f)/f)    (paper, eq. 3).
    """
    size = len(rewards_G)
    if size < 2 or rewards_G.min() == rewards_G.max():
        return np.zeros(size)
    centred_G = rewards_G - fsum(rewards_G) / size
    std = sqrt(fsum(centred_G**2) / (size - 1 if sample_std else size))
    return np.asarray(centred_G / (max(std, std_floor) + eps), dtype=np.float64)
