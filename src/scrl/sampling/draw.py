"""Drawing tokens: from logits and one uniform number per row to a token, its log-probability and the entropy.

`row_uniforms` derives a row's randomness from (seed, step, question, sample), so it does not depend on the other rows
of the batch. One uniform number per token is enough, because tokens are drawn by inverting the cumulative distribution.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor

from scrl.records import Floats
from scrl.sampling.settings import SamplingSettings
from scrl.seeds import generator_for

TOP_CANDIDATES = 1024
"""top-p sorts this many of the likeliest tokens first; sorting a whole vocabulary costs more than a small model."""


class Draw(NamedTuple):
    """One token for each of R rows."""

    tokens_R: Tensor
    logprobs_R: Tensor
    entropies_R: Tensor
    facts_R: dict[str, Tensor]
    """The additional numbers that `record` names."""


def row_uniforms(seed: int, step: int | str, question_id: str, sample: int, number: int) -> Floats:
    """The uniform numbers in [0, 1) that one completion's tokens are drawn with."""
    return generator_for(seed, "sample", step, question_id, sample).random(number)


def draw(logits_RV: Tensor, uniforms_R: Tensor, settings: SamplingSettings, record: Collection[str] = ()) -> Draw:
    """A token from each row, with log π(token) and H = −Σ π log π, π = softmax(logits / T).         (paper, eq. 5)

    π is over the whole vocabulary. With temperature 0 the likeliest token is taken, and π is that of T = 1. top-p and
    top-k restrict what is drawn, never what is recorded. `record` names additional numbers: `margin` is π(likeliest) −
    π(second).
    """
    logprobs_RV = torch.log_softmax(logits_RV.float() / (settings.temperature or 1.0), dim=-1)
    probs_RV = logprobs_RV.exp()
    if settings.temperature == 0:
        tokens_R = logits_RV.argmax(dim=-1)
    else:
        tokens_R = invert_cdf(restrict(probs_RV, settings.top_p, settings.top_k), uniforms_R)
    chosen_R = logprobs_RV.gather(-1, tokens_R[:, None]).squeeze(-1)
    facts_R = {}
    if "margin" in record:
        top_R2 = probs_RV.topk(2, dim=-1).values
        facts_R["margin"] = top_R2[:, 0] - top_R2[:, 1]
    return Draw(tokens_R, chosen_R, torch.special.entr(probs_RV).sum(dim=-1), facts_R)


def invert_cdf(weights_RV: Tensor, uniforms_R: Tensor) -> Tensor:
    """The first token v with Σ_{w ≤ v} weight_w > u · Σ weight; a token of weight 0 is never taken."""
    cdf_RV = weights_RV.cumsum(dim=-1)
    total_R = cdf_RV[:, -1]
    below_R = torch.minimum(uniforms_R.to(cdf_RV.dtype) * total_R, torch.nextafter(total_R, torch.zeros_like(total_R)))
    found_R = torch.searchsorted(cdf_RV, below_R[:, None], right=True).squeeze(-1)
    return found_R.clamp(max=weights_RV.shape[-1] - 1)  # only NaN weights lead beyond the last token


def restrict(probs_RV: Tensor, top_p: float, top_k: int) -> Tensor:
    """Zero for all tokens but the `top_k` likeliest and, of those, the fewest whose mass reaches `top_p`.

    Among equally likely tokens the first ones are kept.
    """
    vocabulary = probs_RV.shape[-1]
    most = top_k if 0 < top_k < vocabulary else vocabulary
    if top_p >= 1 and most == vocabulary:
        return probs_RV
    for number in (TOP_CANDIDATES, vocabulary):
        if number < most < vocabulary or number > vocabulary:
            continue
        sorted_RC, order_RC = _likeliest(probs_RV, number)
        total_R = (probs_RV if most == vocabulary else sorted_RC[:, :most]).sum(dim=-1)
        mass_before_RC = sorted_RC.cumsum(dim=-1) - sorted_RC
        kept_RC = sorted_RC.masked_fill(mass_before_RC >= top_p * total_R[:, None], 0)
        kept_RC[:, most:] = 0
        # Enough candidates: the last one is less likely than all that are kept, so no token beyond it can be kept.
        least_R = kept_RC.masked_fill(kept_RC == 0, torch.inf).amin(dim=-1)
        if number == vocabulary or bool((least_R > sorted_RC[:, -1]).all()):
            break
    return torch.zeros_like(probs_RV).scatter(-1, order_RC, kept_RC)


def _likeliest(probs_RV: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Probabilities and tokens of the `number` likeliest, in falling order; equally likely ones in token order."""
    if number == probs_RV.shape[-1]:
        return probs_RV.sort(dim=-1, descending=True, stable=True)
    order_RC = probs_RV.topk(number, dim=-1).indices.sort(dim=-1).values
    sorted_RC, places_RC = probs_RV.gather(-1, order_RC).sort(dim=-1, descending=True, stable=True)
    return sorted_RC, order_RC.gather(-1, places_RC)
