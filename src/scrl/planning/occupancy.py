"""How many completions a sampler writes side by side while a rollout goes on.

They are taken to end at every token with one probability, and at T at the latest:

    S(t) = e^(−λ t), t < T          the share that is longer than t
    (1 − e^(−λ T)) / λ              their mean length, from which λ follows

All R rows are written as long as others wait to enter, for (n − R) / R mean lengths; then nobody enters, and R S(t)
rows are left after t tokens; with the chance 1 − (1 − S)^R there is any, and a token to write. Summed over tokens, rows
are n mean lengths: what n completions have.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PARTS = 256
"""Of the time in which nobody enters."""


class Occupancy(NamedTuple):
    """A rollout in stretches, in each of which the rows are about as many and as long."""

    tokens_S: NDArray[np.float64]
    """Written by each row."""
    rows_S: NDArray[np.float64]
    written_S: NDArray[np.float64]
    """Tokens that a row has already."""


def occupancy(completions: float, at_once: float, mean: float, longest: float) -> Occupancy:
    """Of so many completions, of which so many are written at once."""
    rate, part = ending_rate(mean, longest), longest / PARTS
    written_S = part * (np.arange(PARTS) + 0.5)
    left_S = np.exp(-rate * written_S)
    left_S *= mean / (left_S.sum() * part)  # a midpoint sum is a little off
    any_S = -np.expm1(at_once * np.log1p(-np.clip(left_S, 1e-30, 1 - 1e-12)))
    return Occupancy(
        np.append((completions / at_once - 1) * mean, part * any_S),
        np.append(at_once, at_once * left_S / any_S),
        np.append((left_S * written_S).sum() / left_S.sum(), written_S),
    )


def ending_rate(mean: float, longest: float) -> float:
    """λ: halved between 0, where all are of the longest length, and 1 / mean, where none is cut off."""
    low, high = 0.0, 1 / mean
    for _ in range(60):
        rate = (low + high) / 2
        is_too_low = -math.expm1(-rate * longest) > mean * rate
        low, high = (rate, high) if is_too_low else (low, rate)
    return low
