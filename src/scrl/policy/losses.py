"""The losses, as pure functions of log-probabilities and advantages.

Shapes: R completions, T tokens (padded; `mask_RT` is true where there is a token). Everything is a sum over tokens of
weight × loss, with the weights fixed before the batch is split: so a split into micro-batches changes no gradient.

| name     | ratio        | clip          | mean                                        | advantage   |
|----------|--------------|---------------|---------------------------------------------|-------------|
| GRPO     | token        | ±0.2          | over a completion's tokens, then completions | normalised  |
| DAPO     | token        | −0.2, +0.28   | over all tokens                             | normalised  |
| Dr. GRPO | token        | ±0.2          | sum over tokens / the most tokens allowed   | centred     |
| GSPO     | completion   | −3e-4, +4e-4  | as GRPO                                     | normalised  |
| RLOO     | token        | ±0.2          | as GRPO                                     | leave-one-out |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scrl.errors import TrainingError
from scrl.policy.settings import KLEstimate, Mean
from scrl.records import Floats

MAX_LOG_RATIO = 20.0
"""The largest log ratio of a token: e²⁰ is far beyond every clip, and 0 · ∞ would be NaN."""
MAX_KL = 10.0
"""The largest KL of a token, in verl's k3."""


def require_finite(loss: float, grad_norm: float | None) -> None:
    """Refuse to continue with weights that have become useless."""
    if not (math.isfinite(loss) and math.isfinite(grad_norm or 0.0)):
        found = f"the loss is {loss} and the gradient's norm {grad_norm}"
        raise TrainingError(f"{found}. Lower optimizer.learning_rate, or compute in float32 (compute.dtype).")


class Clip(NamedTuple):
    """Where ratios are clipped: below 1 − ε_low, above 1 + ε_high, and with dual clip above c."""

    low: float
    high: float
    dual: float | None = None


def token_ratios(logprobs_RT: Tensor, old_logprobs_RT: Tensor) -> Tensor:
    """ρ_t = π(y_t) / π_old(y_t), at most e²⁰.  (paper, eq. 2)"""
    return torch.exp((logprobs_RT - old_logprobs_RT).clamp(max=MAX_LOG_RATIO))


def completion_ratios(logprobs_RT: Tensor, old_logprobs_RT: Tensor, mask_RT: Tensor) -> Tensor:
    """GSPO: s = exp(mean_t (log π − log π_old)), one per completion, spread over its tokens.

    Each token carries s · π(y_t) / sg[π(y_t)], whose value is s and whose gradient is that token's part of it.
    """
    difference_RT = (logprobs_RT - old_logprobs_RT) * mask_RT
    mean_R1 = difference_RT.sum(dim=-1, keepdim=True) / mask_RT.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.exp(mean_R1.detach() + logprobs_RT - logprobs_RT.detach())


def clipped_surrogate(ratios_RT: Tensor, positive_part_R: Tensor, negative_part_R: Tensor, clip: Clip) -> Tensor:
    """ℓ_t = −P min(ρ, 1 + ε_high) − Q max(ρ, 1 − ε_low), P ≥ 0 ≥ Q; dual clip c bounds the second ρ.  (paper, eq. 2)

    With P = max(Â, 0) and Q = min(Â, 0) this is −min(ρ Â, clip(ρ, 1 − ε_low, 1 + ε_high) Â), and with dual clip the
    loss of a negative advantage is at most −c Â.
    """
    rising_RT = ratios_RT.clamp(max=1 + clip.high)
    falling_RT = ratios_RT.clamp(min=1 - clip.low, max=clip.dual)
    return -positive_part_R[:, None] * rising_RT - negative_part_R[:, None] * falling_RT


def is_clipped(ratios_RT: Tensor, positive_part_R: Tensor, negative_part_R: Tensor, clip: Clip) -> Tensor:
    """Where clipping removes the gradient."""
    most = math.inf if clip.dual is None else clip.dual
    has_positive_R1, has_negative_R1 = positive_part_R[:, None] > 0, negative_part_R[:, None] < 0
    is_rising_RT = (ratios_RT <= 1 + clip.high) & has_positive_R1
    is_falling_RT = (ratios_RT >= 1 - clip.low) & (ratios_RT <= most) & has_negative_R1
    return (has_positive_R1 | has_negative_R1) & ~(is_rising_RT | is_falling_RT)


def kl_to_reference(logprobs_RT: Tensor, reference_RT: Tensor, estimate: KLEstimate) -> Tensor:
    """An estimate of KL(π ‖ π_ref) per token, with d = log π_ref − log π: k1 = −d, k2 = d²/2, k3 = eᵈ − d − 1.

    As a loss, k1 has an expected gradient of 0: it can be measured, but it does not constrain the policy.
    `k3-capped` is verl's k3: at most 10, and without a gradient beyond.
    """
    difference_RT = reference_RT - logprobs_RT
    if estimate == "k1":
        return -difference_RT
    if estimate == "k2":
        return difference_RT.square() / 2
    if estimate == "k3-capped":
        difference_RT = difference_RT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        return (torch.exp(difference_RT) - difference_RT - 1).clamp(max=MAX_KL)
    return torch.exp(difference_RT) - difference_RT - 1


def token_weights(lengths_R: Sequence[int], mean: Mean, max_tokens: int) -> Floats:
    """The weight of each token of each of R completions, so that the loss is Σ weight · ℓ.  (paper, eq. 2)

    completion: 1 / (R · T_i)      token: 1 / Σ T      constant: 1 / (R · most tokens allowed)
    pairs: as `token` within consecutive pairs of completions, then the mean over pairs (the authors' code).
    """
    lengths = np.asarray(lengths_R, dtype=np.float64)
    if mean == "completion":
        return 1 / (len(lengths) * np.where(lengths > 0, lengths, 1))
    if mean == "token":
        return np.full(len(lengths), 1 / (lengths.sum() or 1))
    if mean == "constant":
        return np.full(len(lengths), 1 / (max(len(lengths), 1) * max_tokens))
    pair_R = np.arange(len(lengths)) // 2
    tokens_of_pair = np.bincount(pair_R, weights=lengths)
    return 1 / (len(tokens_of_pair) * np.where(tokens_of_pair > 0, tokens_of_pair, 1)[pair_R])
